// Streams, events, captures and graphs.

#include <algorithm>

#include "tests/cuda_stand_in/table.h"

namespace qgpu::stand_in {
namespace {

constexpr U kNonBlocking = 1;

Result createStream(Str* out, U flags) {
  Locked held(machine().lock);
  Context* context = currentContext();
  if (!context || context->dead) return kInvalidContext;
  *out = reinterpret_cast<Str>(makeStream(*context, !(flags & kNonBlocking)));
  return kSuccess;
}

Result createGreenStream(Str* out, Green green, U, int) {
  Locked held(machine().lock);
  Context& context = *reinterpret_cast<Context*>(green);
  if (context.dead) return ++machine().misuses, kInvalidContext;
  *out = reinterpret_cast<Str>(makeStream(context, false));
  return kSuccess;
}

Result destroyStream(Str handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = madeStream(handle);
  if (!stream) stream = find(handle, Stream0::kLegacy, rc);
  if (!stream) return rc;
  stream->dead = true;  // what is in it still runs
  if (stream->capture) {
    breakCapture(*stream->capture);
    std::erase(machine().captures, stream->capture);
  }
  return kSuccess;
}

// Who looks at a stream breaks its capture, and may not while another forbids it.
Result lookAt(Stream& stream) {
  if (stream.capture) return breakCapture(*stream.capture), kCaptureUnsupported;
  if (const Result rc = unsafeCall()) return rc;
  return forbidden(stream);
}

template <Stream0 zero>
Result synchronize(Str handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream || (rc = lookAt(*stream))) return rc;
  std::vector<After> all = {{stream, stream->put}};
  waitFor(held, all);
  return kSuccess;
}

template <Stream0 zero>
Result query(Str handle) {
  rmTakeTime();
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream || (rc = lookAt(*stream))) return rc;
  return stream->done == stream->put ? kSuccess : kNotReady;
}

Result contextOf(Str handle, Ctx* out) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, Stream0::kLegacy, rc);
  if (stream) *out = reinterpret_cast<Ctx>(stream->context);
  return rc;
}

template <Stream0 zero>
Result waitEvent(Str handle, Evt eventHandle, U) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  Event* event = stream ? find(eventHandle, rc) : nullptr;
  if (!event) return rc;
  if (event->capture) {  // the stream joins the capture
    stream->capture = event->capture;
    return kSuccess;
  }
  if (!event->stream) return kSuccess;
  const After after{event->stream, event->sequence};
  if (isDone(after)) return kSuccess;
  return put(*stream, Work{}, [after] { return isDone(after); });
}

// --- events ---

Result createEvent(Evt* out, U) {
  Locked held(machine().lock);
  if (!currentContext()) return kInvalidContext;
  Event& event = machine().events.emplace_back();
  event.context = currentContext();
  *out = reinterpret_cast<Evt>(&event);
  return kSuccess;
}

Result destroyEvent(Evt handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  if (!currentContext()) return kInvalidContext;
  if (Event* event = find(handle, rc)) event->dead = true;
  return rc;
}

template <Stream0 zero>
Result record(Evt handle, Str streamHandle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Event* event = find(handle, rc);
  Stream* stream = event ? find(streamHandle, zero, rc) : nullptr;
  if (!stream) return rc;
  if (memoryOf(*event->context) != memoryOf(*stream->context)) return kInvalidHandle;
  event->capture = stream->capture;
  if (event->capture) return forbidden(*stream);
  auto end = std::make_shared<std::uint64_t>(0);
  if ((rc = put(*stream, Work{0, [end] { *end = nowNs(); }}))) return rc;
  event->stream = stream;
  event->sequence = stream->put;
  event->endNs = end;
  return kSuccess;
}

Result captured(Event& event) {
  if (event.capture) return breakCapture(*event.capture), kCaptureUnsupported;
  return unsafeCall();
}

Result queryEvent(Evt handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Event* event = find(handle, rc);
  if (!event) return rc;
  if ((rc = captured(*event))) return rc;
  if (!currentContext()) return kInvalidContext;
  return !event->stream || isDone({event->stream, event->sequence}) ? kSuccess : kNotReady;
}

Result synchronizeEvent(Evt handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Event* event = find(handle, rc);
  if (!event) return rc;
  if ((rc = captured(*event))) return rc;
  if (event->stream) waitFor(held, {{event->stream, event->sequence}});
  return kSuccess;
}

Result elapsed(float* ms, Evt fromHandle, Evt toHandle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  if (!currentContext()) return kInvalidContext;
  Event* from = find(fromHandle, rc);
  Event* to = from ? find(toHandle, rc) : nullptr;
  if (!to) return rc;
  if (!from->stream || !to->stream) return kInvalidHandle;
  if (*from->endNs == 0 || *to->endNs == 0) return kNotReady;
  *ms = static_cast<float>(static_cast<double>(*to->endNs - *from->endNs) / 1e6);
  return kSuccess;
}

// --- captures and graphs ---

template <Stream0 zero>
Result begin(Str handle, int mode) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream) return rc;
  if (stream->legacy) return kCaptureUnsupported;
  if (stream->capture) return kIllegalState;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  machine().captures.push_back(stream->capture);
  return kSuccess;
}
template <Stream0 zero>
Result beginGlobal(Str handle) {
  return begin<zero>(handle, kCaptureGlobal);
}
template <Stream0 zero>
Result beginInto(Str handle, Graph, const Node*, const void*, Size, int mode) {
  return begin<zero>(handle, mode);
}

template <Stream0 zero>
Result beginAgain(Str handle, int mode, Graph, RecaptureFn, void*) {
  return begin<zero>(handle, mode);
}
template <Stream0 zero>
Result beginForGraphics(Str handle, void*) {
  return begin<zero>(handle, kCaptureGlobal);
}

template <Stream0 zero>
Result end(Str handle, Graph* out) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  *out = nullptr;
  Stream* stream = find(handle, zero, rc);
  if (!stream) return rc;
  if (!stream->capture || stream->capture->origin != stream) return kIllegalState;
  std::shared_ptr<Capture> capture = stream->capture;
  for (Stream& each : machine().streams) {
    if (each.capture == capture) each.capture = nullptr;
  }
  for (Event& each : machine().events) {
    if (each.capture == capture) each.capture = nullptr;
  }
  std::erase(machine().captures, capture);
  if (capture->broken) return kCaptureInvalidated;
  *out = reinterpret_cast<Graph>(new GraphBody(*capture->body));
  return kSuccess;
}

template <Stream0 zero>
Result endForGraphics(Str handle) {
  Graph graph = nullptr;
  const Result rc = end<zero>(handle, &graph);
  delete reinterpret_cast<GraphBody*>(graph);
  return rc;
}

template <Stream0 zero>
Result isCapturing(Str handle, int* status) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream) return rc;
  *status = kNotCapturing;
  if (stream->capture) *status = stream->capture->broken ? kCaptureBroken : kCapturing;
  if (!stream->legacy) return kSuccess;
  const auto& all = stream->context->streams;
  const bool implicit =
      std::any_of(all.begin(), all.end(), [](Stream* s) { return s->blocking && s->capture; });
  return implicit ? kCaptureImplicit : kSuccess;
}

Result exchangeMode(int* mode) {
  std::swap(*mode, threadCaptureMode());
  return kSuccess;
}

// The handle of a graph that was destroyed is given out again: the other handles never are.
std::vector<GraphBody*>& endedGraphs() {
  static std::vector<GraphBody*> all;
  return all;
}

Result instantiate(Exec* out, Graph graph, unsigned long long) {
  Locked held(machine().lock);
  if (endedGraphs().empty()) endedGraphs().push_back(new GraphBody);
  GraphBody* body = endedGraphs().back();
  endedGraphs().pop_back();
  *body = *reinterpret_cast<GraphBody*>(graph);
  *out = reinterpret_cast<Exec>(body);
  return kSuccess;
}
Result instantiateWithParams(Exec* out, Graph graph, void*) {
  return instantiate(out, graph, 0);
}

Result instantiateOfBefore(Exec* out, Graph graph, Node*, char*, Size) {
  return instantiate(out, graph, 0);
}

// A node behind all that the graph has. The addresses must be of memory that is there.
Result addNode(Node* out, Graph graph, std::initializer_list<Ptr> named, Work work) {
  Locked held(machine().lock);
  for (Ptr at : named) {
    if (at && !isOnCard(at)) return kInvalidValue;
  }
  auto& steps = reinterpret_cast<GraphBody*>(graph)->steps;
  steps.push_back(std::move(work));
  *out = reinterpret_cast<Node>(steps.size());
  return kSuccess;
}
// Of one row.
Result addCopy(Node* out, Graph graph, const Node*, Size, const Copy3D* copy, Ctx) {
  void* to = copy->dstDevice ? reinterpret_cast<void*>(copy->dstDevice) : copy->dstHost;
  const void* from =
      copy->srcDevice ? reinterpret_cast<const void*>(copy->srcDevice) : copy->srcHost;
  const auto act = copyOf(to, from, copy->width);
  return addNode(out, graph, {copy->dstDevice, copy->srcDevice}, Work{1, act});
}
struct FillParams {
  Ptr at;
  Size pitch;
  U value, elementBytes;
  Size width, height;
};
Result addFill(Node* out, Graph graph, const Node*, Size, const void* params, Ctx) {
  const FillParams fill = *static_cast<const FillParams*>(params);
  if (fill.elementBytes != 4 || fill.height > 1) return kNotSupported;
  const auto act = [fill] {
    for (Size i = 0; i < fill.width; ++i) reinterpret_cast<U*>(fill.at)[i] = fill.value;
  };
  return addNode(out, graph, {fill.at}, Work{1, act});
}
// Changes of graphs, and nodes of any kind.
template <typename F>
struct NotHere;
template <typename... A>
struct NotHere<Result (*)(A...)> {
  static Result call(A...) { return kNotSupported; }
};
template <typename F>
void notHere(F& place) {
  place = NotHere<F>::call;
}

Result destroyGraph(Graph graph) {
  delete reinterpret_cast<GraphBody*>(graph);
  return kSuccess;
}
Result destroyExec(Exec graph) {
  Locked held(machine().lock);
  endedGraphs().push_back(reinterpret_cast<GraphBody*>(graph));
  return kSuccess;
}

template <Stream0 zero>
Result launchGraph(Exec graph, Str handle) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream) return rc;
  const GraphBody body = *reinterpret_cast<GraphBody*>(graph);
  Work all;
  for (const Work& step : body.steps) all.ns += step.ns;
  all.act = [body] {
    for (const Work& step : body.steps) {
      if (step.act) step.act();
    }
  };
  return put(*stream, std::move(all));
}

}  // namespace

void fillStreams(Table& table) {
  constexpr auto legacy = Stream0::kLegacy, own = Stream0::kPerThread;
  table.cuStreamCreate = createStream;
  table.cuGreenCtxStreamCreate = createGreenStream;
  table.cuStreamDestroy = table.cuStreamDestroy_v2 = destroyStream;
  table.cuStreamSynchronize = synchronize<legacy>;
  table.cuStreamSynchronize_ptsz = synchronize<own>;
  table.cuStreamQuery = query<legacy>;
  table.cuStreamQuery_ptsz = query<own>;
  table.cuStreamGetCtx = contextOf;
  table.cuStreamWaitEvent = waitEvent<legacy>;
  table.cuStreamWaitEvent_ptsz = waitEvent<own>;
  table.cuEventCreate = createEvent;
  table.cuEventDestroy_v2 = destroyEvent;
  table.cuEventRecord = record<legacy>;
  table.cuEventRecord_ptsz = record<own>;
  table.cuEventQuery = queryEvent;
  table.cuEventSynchronize = synchronizeEvent;
  table.cuEventElapsedTime = elapsed;
}

void fillGraphs(Table& table) {
  constexpr auto legacy = Stream0::kLegacy, own = Stream0::kPerThread;
  table.cuStreamBeginCapture = beginGlobal<legacy>;
  table.cuStreamBeginCapture_ptsz = beginGlobal<own>;
  table.cuStreamBeginCapture_v2 = begin<legacy>;
  table.cuStreamBeginCapture_v2_ptsz = begin<own>;
  table.cuStreamBeginCaptureToGraph = beginInto<legacy>;
  table.cuStreamBeginCaptureToGraph_ptsz = beginInto<own>;
  table.cuStreamBeginRecaptureToGraph = beginAgain<legacy>;
  table.cuStreamBeginRecaptureToGraph_ptsz = beginAgain<own>;
  table.cuStreamBeginCaptureToCig = beginForGraphics<legacy>;
  table.cuStreamBeginCaptureToCig_ptsz = beginForGraphics<own>;
  table.cuStreamEndCaptureToCig = endForGraphics<legacy>;
  table.cuStreamEndCaptureToCig_ptsz = endForGraphics<own>;
  table.cuStreamEndCapture = end<legacy>;
  table.cuStreamEndCapture_ptsz = end<own>;
  table.cuStreamIsCapturing = isCapturing<legacy>;
  table.cuStreamIsCapturing_ptsz = isCapturing<own>;
  table.cuThreadExchangeStreamCaptureMode = exchangeMode;
  table.cuGraphInstantiateWithFlags = instantiate;
  table.cuGraphInstantiateWithParams = table.cuGraphInstantiateWithParams_ptsz =
      instantiateWithParams;
  table.cuGraphAddMemcpyNode = addCopy;
  table.cuGraphAddMemsetNode = addFill;
  notHere(table.cuGraphAddNode);
  notHere(table.cuGraphAddNode_v2);
  notHere(table.cuGraphExecMemcpyNodeSetParams);
  notHere(table.cuGraphExecMemsetNodeSetParams);
  notHere(table.cuGraphExecUpdate_v2);
  notHere(table.cuPointerSetAttribute);
  notHere(table.cuMemGetAccess);
  notHere(table.cuMulticastBindAddr);
  notHere(table.cuTexObjectCreate);
  notHere(table.cuTexRefSetAddress_v2);
  notHere(table.cuTexRefSetAddress2D_v3);
  notHere(table.cuGraphMemcpyNodeSetParams);
  notHere(table.cuGraphMemsetNodeSetParams);
  notHere(table.cuGraphNodeSetParams);
  notHere(table.cuGraphExecNodeSetParams);
  notHere(table.cuGraphAddBatchMemOpNode);
  notHere(table.cuGraphBatchMemOpNodeSetParams);
  notHere(table.cuGraphExecBatchMemOpNodeSetParams);
  notHere(table.cuGraphAddChildGraphNode);
  notHere(table.cuGraphExecChildGraphNodeSetParams);
  notHere(table.cuGraphExecUpdate);
  table.cuGraphInstantiate = table.cuGraphInstantiate_v2 = instantiateOfBefore;
  table.cuGraphDestroy = destroyGraph;
  table.cuGraphExecDestroy = destroyExec;
  table.cuGraphLaunch = launchGraph<legacy>;
  table.cuGraphLaunch_ptsz = launchGraph<own>;
}

}  // namespace qgpu::stand_in
