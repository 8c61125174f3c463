"""Whatever is asked for: a counting kernel for its first operand."""


def __getattr__(name):
    return lambda tensor, *_, **__: tensor.count()
