// A libcuda.so.1 of before most of what libqgpu.so stands in front of.

extern "C" {
__attribute__((visibility("default"))) int cuInit(unsigned) {
  return 0;
}
__attribute__((visibility("default"))) int cuCtxSynchronize() {
  return 0;
}
}
