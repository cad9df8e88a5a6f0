"""
A change of terms costs no price where the account has room
===========================================================

The account of a zone is carried from block to block. It admits a block, or it does not. Here any 24
hours lose at most 1 nat; on the third day the operator promises any week instead, at the same ε.
The account of the old promise goes on until no window touches its blocks.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import Account

days = 4 if os.environ.get("HUSHGRID_SMALL") else 16
hour, day = 4, 96  # steps
block = 6 * hour

# %%
# Blocks of six hours: a window of 24 hours touches five of them, so each may lose a fifth.
account = Account.window(steps=day, epsilon=1.0)
change = 2 * day
losses, room = [], []
for first in range(0, days * day, block):
    if first == change:
        account = account.under(7 * day, 1.0, since=first)
    wish = 1 / 5 if first < change else 1 / 29
    room.append(account.most(first))
    loss = min(wish, room[-1])
    account = account.admit(loss, first, first + block - 1)
    losses.append(loss)
print(f"blocks of {losses[0]:.3f} nat before the change, of {losses[-1]:.3f} after it")
print(f"least that the account would have admitted: {min(room):.3f}")

# %%
# What a window has lost that ends one step into a block, by the records alone: it touches most
# blocks. A promise speaks of the windows that begin after it was made.
losses, ends = np.array(losses), (np.arange(len(losses)) + 1) * block
starts = ends - block
figure, (above, below) = plt.subplots(2, sharex=True, layout="constrained")
above.bar(starts / day, losses, width=block / day, align="edge", color="tab:blue")
above.step(starts / day, room, where="post", color="grey", label="most that is admitted")
above.set(ylabel="loss of a block [nat]")
above.legend()
promises = ((day, 0, "any 24 hours", "tab:blue"), (7 * day, change, "any week", "navy"))
for width, since, label, color in promises:
    later = starts[starts >= since] + 1
    lost = [losses[(ends > max(end - width, since)) & (starts < end)].sum() for end in later]
    below.step(later / day, lost, where="post", color=color, label=label)
    print(f"{label}: at most {max(lost):.3f}")
below.axhline(1, color="grey", linestyle=":", label="promised")
below.axvline(change / day, color="grey", linewidth=0.5)
below.set(xlabel="day", ylabel="loss [nat]", ylim=(0, None))
below.legend(loc="lower right")
plt.show()
