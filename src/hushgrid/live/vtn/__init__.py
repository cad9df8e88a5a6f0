"""An OpenADR 3.1.0 VTN: programs and events from the ledger, objects of VENs beside them."""
