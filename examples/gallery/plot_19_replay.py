"""
A hundred homes are too few for a promise about two weeks
=========================================================

A year of real homes, played at twelve promises by `hushgrid replay`: 100 homes of London (Low
Carbon London, UK Power Networks, CC BY) and 50 of New South Wales (Smart-Grid Smart-City Customer
Trial, Commonwealth of Australia, CC BY 3.0 AU), half hours of 2013. The readings are public, and
not here; the figures are parts of the `evidence.json` that the command wrote, to four digits:

    hushgrid replay readings_2013_100homes.parquet --bound 2500

    hushgrid replay readings_2013_50homes.parquet --bound 2500 --usual 4000
    --time-zone Australia/Sydney --draws 1
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

zones = {"London, 100 homes": "replay_london.json",
         "New South Wales, 50 homes": "replay_new_south_wales.json"}  # fmt: skip
figures = {name: json.loads(Path(file).read_text()) for name, file in zones.items()}
windows = {None: "any half hour", "P1D": "any day", "P7D": "any week", "P14D": "any two weeks"}
shades = {0.5: "skyblue", 1.0: "tab:blue", 2.0: "navy"}

# %%
# Blue is private, darker for larger ε. Grey uses no reading. Orange gives earlier days away.
chart, axes = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
for panel, (name, evidence) in zip(axes, figures.items(), strict=True):
    promises = [one for one in evidence["promises"] if not one["ahead"]]
    rows = [
        (f"{windows[one['window']]}, ε = {one['epsilon']:g}", one["error"], shades[one["epsilon"]])
        for one in promises
    ]
    for other in evidence["others"]:
        if not other["ahead"] and other["name"] != "exact":
            color = "grey" if other["gives_away"] == "nothing" else "tab:orange"
            rows.append((other["label"], other["error"], color))
    for place, (_, error, color) in enumerate(rows):
        panel.plot([100 * end for end in error["ci95"]], [-place, -place], color=color)
        panel.plot([100 * error["mean"]], [-place], "o", color=color)
    panel.set_yticks(range(0, -len(rows), -1), [label for label, *_ in rows], fontsize=8)
    panel.set(xlabel="price is off by, %", ylabel="price", title=name, xlim=(0, None))
    panel.grid(alpha=0.3)
plt.show()

# %%
# An attacker who knows every other home looks for two weeks of absence, at one false alarm in a
# hundred, in the ten homes most at risk.
chart, panel = plt.subplots(figsize=(8, 3.5), layout="constrained")
for shift, (name, evidence) in enumerate(figures.items()):
    rows = [one for one in evidence["attacks"]["absence"] if one["epsilon"] in (None, 1.0)]
    for place, one in enumerate(rows):
        color = "tab:orange" if one["epsilon"] is None else "tab:blue"
        height = -place - 0.35 * shift
        share = 100 * one["detected"]
        panel.plot([0, share], [height, height], color=color, linewidth=7, alpha=1 - 0.4 * shift)
        panel.text(share + 3, height, f"{share:.0f} of 100, {name}", va="center", fontsize=8)
labels = ["exact prices" if one["epsilon"] is None else one["prices"] for one in rows]
panel.set_yticks([-place - 0.17 for place in range(len(rows))], labels)
panel.set(xlabel="absences found, of 100", xlim=(0, 175))
plt.show()
