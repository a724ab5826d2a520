"""The models' tests run beside others: one thread each is faster than all of them on every core."""

import torch

torch.set_num_threads(1)
