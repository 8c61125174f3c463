"""Inference as engines do it, and training, in plain PyTorch: a small transformer with random
weights, which knows nothing of who shares its card.

  serve --requests N --every-ms MS   requests on a schedule, one after the other: a prefill, then
                                     decode steps by a CUDA graph; its KV cache grows. Says
                                     "serves" when it is warm, and waits for the file that --from
                                     names. Prints how long first tokens took from when their
                                     requests were due, and every other token from the one before,
                                     a sum over all tokens, and when it began and ended.
  train --seconds S | --until FILE   steps of SGD; says "trains" when it is warm. Prints when each
                                     step ended.

Times are seconds of CLOCK_MONOTONIC. Ends with 77 where there is no PyTorch that sees a card.
"""

import argparse
import json
import os
import sys
import time

try:
    import torch
    from torch.nn import functional
except ImportError as missing:
    print(missing)
    sys.exit(77)
if not torch.cuda.is_available():
    print("PyTorch sees no card")
    sys.exit(77)

WIDTH, HEADS, LAYERS, TOKENS = 768, 12, 6, 8192
PROMPT, ANSWER = 512, 48
ROOMS = (PROMPT + 16, PROMPT + ANSWER)  # of the cache: a request that outgrows one moves on
BATCH, LENGTH = 8, 512  # of training


def now():
    torch.cuda.synchronize()
    return time.perf_counter()


def weight(*shape):
    return (torch.randn(*shape, device="cuda") * 0.05).requires_grad_(False)


class Transformer:
    """Blocks of attention and a small network each; no biases, no training tricks."""

    def __init__(self):
        self.embedding = weight(TOKENS, WIDTH)
        self.layers = [
            {"qkv": weight(3 * WIDTH, WIDTH), "out": weight(WIDTH, WIDTH),
             "up": weight(4 * WIDTH, WIDTH), "down": weight(WIDTH, 4 * WIDTH)}
            for _ in range(LAYERS)
        ]

    def weights(self):
        return [self.embedding] + [one for layer in self.layers for one in layer.values()]

    def forward(self, tokens, attend):
        """Logits of all `tokens` (batch, length). attend(layer, q, k, v), of (batch, heads, length,
        width of a head) each, gives the same shape."""
        x = self.embedding[tokens]
        batch, length = tokens.shape[0], tokens.shape[1]
        for number, layer in enumerate(self.layers):
            qkv = functional.linear(functional.layer_norm(x, (WIDTH,)), layer["qkv"])
            heads = qkv.view(batch, length, 3, HEADS, WIDTH // HEADS)
            q, k, v = heads.permute(2, 0, 3, 1, 4).unbind()
            seen = attend(number, q, k, v).transpose(1, 2).reshape(batch, length, WIDTH)
            x = x + functional.linear(seen, layer["out"])
            up = functional.linear(functional.layer_norm(x, (WIDTH,)), layer["up"])
            x = x + functional.linear(functional.gelu(up), layer["down"])
        return functional.linear(functional.layer_norm(x, (WIDTH,)), self.embedding)


def attend_all(_, q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Room:
    """A cache of so many tokens, and a decode step on it as a graph: one token is read, its keys
    and values written at `at`, and the next token is in its place."""

    def __init__(self, model, size):
        self.model, self.size = model, size
        shape = (LAYERS, 1, HEADS, size, WIDTH // HEADS)
        self.keys = torch.zeros(shape, device="cuda")
        self.values = torch.zeros(shape, device="cuda")
        self.token = torch.zeros((1, 1), dtype=torch.int64, device="cuda")
        self.at = torch.zeros((1,), dtype=torch.int64, device="cuda")
        self.places = torch.arange(size, device="cuda")
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self.step()  # libraries make what they need before they are captured
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def attend(self, layer, q, k, v):
        self.keys[layer].index_copy_(2, self.at, k)
        self.values[layer].index_copy_(2, self.at, v)
        written = (self.places <= self.at).view(1, 1, 1, self.size)
        return functional.scaled_dot_product_attention(
            q, self.keys[layer], self.values[layer], attn_mask=written)

    def step(self):
        logits = self.model.forward(self.token, self.attend)
        self.token.copy_(logits[:, -1:].argmax(-1))
        self.at.add_(1)

    def take(self, keys, values, length, token):
        self.keys[..., :length, :].copy_(keys[..., :length, :])
        self.values[..., :length, :].copy_(values[..., :length, :])
        self.at.fill_(length)
        self.token.copy_(token)


class Server:
    def __init__(self):
        self.model = Transformer()
        self.rooms = [Room(self.model, size) for size in ROOMS]

    def answer(self, prompt):
        """Serves one prompt: when each of its tokens was there, and the sum of all."""
        kept = []

        def attend(layer, q, k, v):
            kept.append((k, v))
            return attend_all(layer, q, k, v)

        logits = self.model.forward(prompt, attend)
        token = logits[:, -1:].argmax(-1)
        total = token.sum().item()  # waits for it
        times = [time.perf_counter()]
        keys = torch.stack([k for k, _ in kept])
        values = torch.stack([v for _, v in kept])
        length, room = PROMPT, None
        for _ in range(ANSWER - 1):
            if room is None or length == room.size:
                held = (keys, values) if room is None else (room.keys, room.values)
                room = next(one for one in self.rooms if one.size > length)
                room.take(*held, length, token)
            room.graph.replay()
            length += 1
            token = room.token
            total += token.sum().item()
            times.append(time.perf_counter())
        return times, total


def rank_ms(seconds, permille):
    """The smallest that so many are not above, as ranks.h has it."""
    ordered = sorted(seconds)
    return round(ordered[max(1, -(-len(ordered) * permille // 1000)) - 1] * 1e3, 3)


def serve(requests, every, start):
    server = Server()
    prompts = [torch.randint(0, TOKENS, (1, PROMPT), device="cuda") for _ in range(requests)]
    server.answer(prompts[0])
    print("serves", flush=True)
    while start and not os.path.exists(start):
        time.sleep(0.001)
    first_tokens, others, total = [], [], 0
    begin = now()
    for number, prompt in enumerate(prompts):
        due = begin + number * every
        while time.perf_counter() < due:
            time.sleep(max(0.0, due - time.perf_counter()))
        times, tokens = server.answer(prompt)
        first_tokens.append(times[0] - due)
        others += [after - before for before, after in zip(times, times[1:])]
        total += tokens
    return {"requests": requests, "begin": begin, "end": time.perf_counter(), "tokens": total,
            "ttft_p50_ms": rank_ms(first_tokens, 500), "ttft_max_ms": rank_ms(first_tokens, 1000),
            "tpot_p50_ms": rank_ms(others, 500), "tpot_p99_ms": rank_ms(others, 990)}


def train(seconds, until):
    model = Transformer()
    weights = [one.requires_grad_(True) for one in model.weights()]
    texts = [torch.randint(0, TOKENS, (BATCH, LENGTH + 1), device="cuda") for _ in range(4)]

    def step(number):
        text = texts[number % len(texts)]
        logits = model.forward(text[:, :-1], attend_all)
        loss = functional.cross_entropy(logits.reshape(-1, TOKENS), text[:, 1:].reshape(-1))
        loss.backward()
        with torch.no_grad():
            for one in weights:
                one.sub_(one.grad, alpha=0.01)
                one.grad = None
        return loss

    for number in range(2):
        step(number)
    begin, ends = now(), []
    print("trains", flush=True)
    while not (until and os.path.exists(until)) and not (seconds and now() - begin > seconds):
        step(len(ends)).item()
        ends.append(round(time.perf_counter(), 6))
    return {"begin": begin, "ends": ends}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["serve", "train"])
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--every-ms", type=float, default=200)
    parser.add_argument("--from", dest="start", default="")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--until", default="")
    asked = parser.parse_args()
    torch.manual_seed(7)
    if asked.what == "serve":
        with torch.no_grad():
            found = serve(asked.requests, asked.every_ms / 1e3, asked.start)
    else:
        found = train(asked.seconds, asked.until)
    print()
    print(json.dumps({**found, "version": torch.__version__}))


main()
