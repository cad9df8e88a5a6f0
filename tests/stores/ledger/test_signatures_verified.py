"""Ed25519 of the script that needs the standard library alone, against RFC 8032."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.stores.ledger.verifier import SCRIPTED

RFC8032 = (  # section 7.1, tests 1, 2, 3 and SHA(abc): key, text, signature
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
        "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
)


@pytest.mark.parametrize("vector", RFC8032, ids=("test 1", "test 2", "test 3", "SHA(abc)"))
def test_vectors_of_the_rfc(vector: tuple[str, str, str]) -> None:
    key, text, signature = map(bytes.fromhex, vector)
    assert SCRIPTED.first_forged(key, [(signature, text)]) is None
    for at in (0, 31, 32, 63):
        changed = bytearray(signature)
        changed[at] ^= 1
        assert SCRIPTED.first_forged(key, [(bytes(changed), text)]) == 0
    assert SCRIPTED.first_forged(key, [(signature, text + b"x")]) == 0
    other = bytes.fromhex(RFC8032[0][0] if vector != RFC8032[0] else RFC8032[1][0])
    assert SCRIPTED.first_forged(other, [(signature, text)]) == 0


def test_a_signature_counts_once() -> None:
    """A number that is the same but for a multiple of the order is no signature of the RFC."""
    key, text, signature = map(bytes.fromhex, RFC8032[2])
    s = int.from_bytes(signature[32:], "little") + SCRIPTED.ORDER
    assert SCRIPTED.first_forged(key, [(signature[:32] + s.to_bytes(32, "little"), text)]) == 0


@pytest.mark.parametrize("forged", [None, 0, 5, 36])
def test_of_many_the_first_that_is_forged_is_found(forged: int | None) -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    texts = [f"record {n}".encode() for n in range(37)]
    signed = [(private.sign(text), text) for text in texts]
    if forged is not None:
        for at in (forged, 36):
            signed[at] = (signed[at][0], b"another record")
    key = private.public_key().public_bytes_raw()
    assert SCRIPTED.first_forged(key, signed) == forged
