#pragma once
// The OpenCL front end of libqgpu.so: wrappers around the driver's dispatch table, installed by the
// ICD loader as an official layer (OPENCL_LAYERS) or, for loaders without layers, by preload. Each
// wrapper asks the core (reserve, release, admit, retire) and then calls the driver; what is not
// wrapped falls through. Synchronisation, queries and flushes are never gated.

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl_icd.h>

namespace qgpu::guest {

// The functions below the layer. Set once, before the first call arrives.
extern const cl_icd_dispatch* driver;

// Fill in the wrappers of one area each.
void wrapDevices(cl_icd_dispatch& table);
void wrapMemory(cl_icd_dispatch& table);
void wrapLaunches(cl_icd_dispatch& table);
void wrapTransfers(cl_icd_dispatch& table);
void wrapSync(cl_icd_dispatch& table);
void wrapCallbacks(cl_icd_dispatch& table);

// All wrappers, over a table of nulls. Built once.
const cl_icd_dispatch* layerTable();

}  // namespace qgpu::guest
