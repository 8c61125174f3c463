// Queues and synchronising calls. These are never gated; what they waited for is retired here, for
// free, before the application goes on (HAZARDS 19).

#include "services/guest/opencl/opencl_layer.h"
#include "services/guest/opencl/retirement.h"

namespace qgpu::guest {
namespace {

cl_command_queue CL_API_CALL createQueue(cl_context context, cl_device_id device,
                                         cl_command_queue_properties properties, cl_int* rc) {
  cl_command_queue queue = driver->clCreateCommandQueue(context, device, properties, rc);
  if (queue) queueCreated(queue);
  return queue;
}

cl_command_queue CL_API_CALL createQueueWithProperties(cl_context context, cl_device_id device,
                                                       const cl_queue_properties* properties,
                                                       cl_int* rc) {
  cl_command_queue queue =
      driver->clCreateCommandQueueWithProperties(context, device, properties, rc);
  if (queue) queueCreated(queue);
  return queue;
}

cl_int CL_API_CALL retainQueue(cl_command_queue queue) {
  cl_int rc = driver->clRetainCommandQueue(queue);
  if (rc == CL_SUCCESS) queueRetained(queue);
  return rc;
}

cl_int CL_API_CALL releaseQueue(cl_command_queue queue) {
  queueReleased(queue);
  return driver->clReleaseCommandQueue(queue);
}

cl_int CL_API_CALL setQueueProperty(cl_command_queue queue, cl_command_queue_properties property,
                                    cl_bool enable, cl_command_queue_properties* old) {
  cl_int rc = driver->clSetCommandQueueProperty(queue, property, enable, old);
  if (rc == CL_SUCCESS) queueChanged(queue);
  return rc;
}

cl_int CL_API_CALL finish(cl_command_queue queue) {
  std::uint64_t mark = syncMark(queue);
  cl_int rc = driver->clFinish(queue);
  synced(queue, mark, rc == CL_SUCCESS ? Finished::kAll : Finished::kUnknown);
  return rc;
}

cl_int CL_API_CALL waitForEvents(cl_uint count, const cl_event* events) {
  cl_int rc = driver->clWaitForEvents(count, events);
  cl_command_queue last = nullptr;
  for (cl_uint i = 0; events && i < count; ++i) {
    cl_command_queue queue = nullptr;
    cl_int known =
        driver->clGetEventInfo(events[i], CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, nullptr);
    if (known != CL_SUCCESS || !queue || queue == last) continue;  // user events have no queue
    pollQueue(queue);
    last = queue;
  }
  return rc;
}

}  // namespace

void wrapSync(cl_icd_dispatch& table) {
  table.clCreateCommandQueue = createQueue;
  table.clCreateCommandQueueWithProperties = createQueueWithProperties;
  table.clRetainCommandQueue = retainQueue;
  table.clReleaseCommandQueue = releaseQueue;
  table.clSetCommandQueueProperty = setQueueProperty;
  table.clFinish = finish;
  table.clWaitForEvents = waitForEvents;
}

}  // namespace qgpu::guest
