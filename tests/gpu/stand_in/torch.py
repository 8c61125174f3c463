"""As much of PyTorch as tests/gpu/torch_work.py needs, on the stand-in driver: its calls by way of
ctypes, its counting kernel for every operation. What a product is is how often kernels ran for
it."""

import ctypes

__version__ = "of the stand-in"
float32, uint8 = 4, 1  # bytes of each

_driver = ctypes.CDLL("libcuda.so.1")
_OUT_OF_MEMORY = 2
_PRODUCT_KERNELS = 8


class _Cuda:
    class OutOfMemoryError(RuntimeError):
        pass

    def is_available(self):
        return True

    def synchronize(self):
        _call("cuCtxSynchronize")

    def mem_get_info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def max_memory_reserved(self):
        return _taken


cuda = _Cuda()


def _call(name, *arguments):
    code = getattr(_driver, name)(*arguments)
    if code == _OUT_OF_MEMORY:
        raise cuda.OutOfMemoryError(name)
    if code != 0:
        raise RuntimeError(f"{name}: {code}")


def _counting_kernel():
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _call("cuInit", 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    _call("cuCtxSetCurrent", context)
    _call("cuModuleLoadData", ctypes.byref(module), b"")
    _call("cuModuleGetFunction", ctypes.byref(kernel), module, b"add")
    return kernel


_kernel = _counting_kernel()
_taken = 0


class _Tensor:
    def __init__(self, size):
        global _taken
        self.at = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(self.at), ctypes.c_size_t(size))
        _taken += size
        _call("cuMemsetD8_v2", self.at, ctypes.c_ubyte(0), ctypes.c_size_t(8))
        self.arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self.at))

    def add_(self, _):
        _call("cuLaunchKernel", _kernel, 1, 1, 1, 1, 1, 1, 0, None, self.arguments, None)
        return self

    def fill_(self, _):
        return self

    def cuda(self):
        return self

    def double(self):
        return self

    def sum(self):
        return self

    def __matmul__(self, _):
        made = _Tensor(8)
        for _ in range(_PRODUCT_KERNELS):
            made.add_(1)
        return made

    def item(self):
        value = ctypes.c_uint64()
        _call("cuMemcpyDtoH_v2", ctypes.byref(value), self.at, ctypes.c_size_t(8))
        return float(value.value)


def manual_seed(_):
    pass


def use_deterministic_algorithms(_, warn_only):
    pass


def randint(_low, _high, shape, dtype):
    return _Tensor(shape[0] * shape[1] * dtype)


def ones(count, device):
    return _Tensor(count * float32)


def empty(count, dtype, device):
    return _Tensor(count * dtype)
