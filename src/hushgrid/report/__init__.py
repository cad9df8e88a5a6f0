"""Results as tables, prose and figures. Returns them; writing is the edge's business."""

from hushgrid.report.attack import attack_figure, attack_json, attack_prose, attack_table
from hushgrid.report.certificate import certificate_json, certificate_prose
from hushgrid.report.compare import (
    battery_table,
    comparison_json,
    comparison_table,
    guarantee_prose,
    ratio_table,
    terms_prose,
)
from hushgrid.report.compare_figures import battery_figure, comparison_figure
from hushgrid.report.compare_page import comparison_page
from hushgrid.report.demo import demo_figure, demo_json, demo_prose, demo_table
from hushgrid.report.page import certificate_page
from hushgrid.report.paper import (
    experiment_figures,
    experiment_json,
    experiment_prose,
    experiment_table,
    simulation_json,
    simulation_table,
    sweep_figures,
    sweep_json,
)
from hushgrid.report.plan import plan_figure, plan_json, plan_prose, sensitivity_tables
from hushgrid.report.promise import Outlook, outlook_json, outlook_prose

__all__ = [
    "Outlook",
    "attack_figure",
    "attack_json",
    "attack_prose",
    "attack_table",
    "battery_figure",
    "battery_table",
    "certificate_json",
    "certificate_page",
    "certificate_prose",
    "comparison_figure",
    "comparison_json",
    "comparison_page",
    "comparison_table",
    "demo_figure",
    "demo_json",
    "demo_prose",
    "demo_table",
    "experiment_figures",
    "experiment_json",
    "experiment_prose",
    "experiment_table",
    "guarantee_prose",
    "outlook_json",
    "outlook_prose",
    "plan_figure",
    "plan_json",
    "plan_prose",
    "ratio_table",
    "sensitivity_tables",
    "simulation_json",
    "simulation_table",
    "sweep_figures",
    "sweep_json",
    "terms_prose",
]
