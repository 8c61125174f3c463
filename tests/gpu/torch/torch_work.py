# A plain PyTorch program: one matrix product whose result must not depend on who shares the card,
# and memory until PyTorch says that there is none. With the word "loop" nothing but a loop of small
# operations, for its time.
import json
import sys
import time

try:
    import torch
except ImportError as missing:
    print(missing)
    sys.exit(77)
if not torch.cuda.is_available():
    print("PyTorch sees no card")
    sys.exit(77)

small = torch.ones(256, device="cuda")


def loop():
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20000):
        small.add_(1)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 20000 * 1e6


if "loop" in sys.argv[1:]:
    loop()
    print()
    print(json.dumps({"loop_us": round(sorted(loop() for _ in range(9))[4], 3)}))
    sys.exit(0)

torch.manual_seed(7)
torch.use_deterministic_algorithms(True, warn_only=True)
left = torch.randint(-8, 8, (2048, 2048), dtype=torch.float32).cuda()
right = torch.randint(-8, 8, (2048, 2048), dtype=torch.float32).cuda()
total = torch.cuda.mem_get_info()[1]
product = (left @ right).double().sum().item()

held, refused = [], False
try:
    while len(held) < 1024:
        held.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda").fill_(1))
except torch.cuda.OutOfMemoryError:
    refused = True
most = torch.cuda.max_memory_reserved()
print()
print(json.dumps({"sum": product, "total": total, "out_of_memory": refused, "most": most,
                  "version": torch.__version__}))
