#include "collectives/nccl/nccl_api.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "collectives/nccl/device_kernels.hpp"

namespace mayfly::collectives {
namespace {

// NCCL writes the handle a second time, from its own thread, when the initialisation is complete.
// So the handle must not move until the communicator is destroyed.
struct CommHandle {
  ncclComm_t comm = nullptr;
};

NcclStatus status_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return NcclStatus::kSuccess;
    case ncclInProgress: return NcclStatus::kInProgress;
    case ncclRemoteError: return NcclStatus::kRemoteError;
    case ncclSystemError: return NcclStatus::kSystemError;
    case ncclUnhandledCudaError: return NcclStatus::kDeviceError;
    case ncclInvalidArgument:
    case ncclInvalidUsage: return NcclStatus::kBadCall;
    default: return NcclStatus::kInternalError;
  }
}

// How NCCL computes a reduction. The maximum of floats is computed from integers in the same order,
// because NCCL's own maximum would lose NaNs and the order of zeros.
bool as_ordered_integers(const DeviceTask& task) {
  return task.type == DataType::kFloat32 && task.op == ReduceOp::kMax;
}

ncclDataType_t wire_type(const DeviceTask& task) {
  switch (task.type) {
    case DataType::kFloat32: return as_ordered_integers(task) ? ncclInt32 : ncclFloat32;
    case DataType::kInt32: return ncclInt32;
    case DataType::kInt64: return ncclInt64;
    case DataType::kFloat16: return ncclFloat16;
    case DataType::kBFloat16: return ncclBfloat16;
    case DataType::kInt16: break;
  }
  UNREACHABLE("check_reduction() refuses what NCCL does not have");
}

ncclRedOp_t wire_op(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : ncclMax;
}

class CudaNcclApi final : public NcclApi {
 public:
  explicit CudaNcclApi(int device) : device_(device) {}
  ~CudaNcclApi() override {
    // Without a device there is nothing to free, and a failed device frees nothing.
    if (stream_ != nullptr) {
      (void)cudaStreamDestroy(stream_);
    }
    if (scratch_ != nullptr) {
      (void)cudaFree(scratch_);
    }
  }

  Result<void> open() {
    int lowest = 0;
    int highest = 0;
    cudaDeviceProp properties{};
    const bool opened =
        works(cudaSetDevice(device_)) && works(cudaGetDeviceProperties(&properties, device_)) &&
        works(cudaDeviceGetStreamPriorityRange(&lowest, &highest)) &&
        works(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest)) &&
        works(cudaMalloc(&scratch_, sizeof(std::int32_t))) &&
        works(cudaMemsetAsync(scratch_, 0, sizeof(std::int32_t), stream_)) &&
        works(static_cast<cudaError_t>(device_kernels::load()));
    name_ = fmt::format("GPU {} ({})", device_, properties.name);
    if (!opened) {
      return Error{Errc::kIo, fmt::format("cannot open {}: {}", name_, explain(nullptr))};
    }
    return {};
  }

  std::string device_name() const override { return name_; }
  NcclStatus bind_thread() override { return cuda(cudaSetDevice(device_)); }

  std::string explain(NcclComm comm) override {
    {
      const std::lock_guard lock(mutex_);
      if (!cuda_error_.empty()) {
        return std::exchange(cuda_error_, {});
      }
    }
    const auto* const handle = static_cast<const CommHandle*>(comm);
    const char* const text = ncclGetLastError(handle != nullptr ? handle->comm : nullptr);
    return text != nullptr ? text : "";
  }

  NcclStatus make_unique_id(NcclUniqueId& id) override {
    ncclUniqueId made{};
    static_assert(sizeof made == sizeof id);
    const ncclResult_t result = ncclGetUniqueId(&made);
    std::memcpy(id.data(), &made, sizeof made);
    return nccl_status(result);
  }

  NcclStatus init(NcclComm& comm, const NcclUniqueId& id, std::uint32_t size,
                  std::uint32_t rank) override {
    ncclUniqueId name{};
    std::memcpy(&name, id.data(), sizeof name);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    auto* const handle = new CommHandle();  // freed by destroy() or abort()
    comm = handle;
    return nccl_status(ncclCommInitRankConfig(&handle->comm, static_cast<int>(size), name,
                                              static_cast<int>(rank), &config));
  }

  NcclStatus state(NcclComm comm) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(nccl(comm), &state);
    return nccl_status(asked == ncclSuccess ? state : asked);
  }

  NcclStatus enqueue(NcclComm comm, const DeviceTask& task) override {
    if (task.count == 0) {
      return NcclStatus::kSuccess;  // the same on every member
    }
    if (!reachable(task.from) || !reachable(task.to)) {
      return NcclStatus::kBadCall;
    }
    if (as_ordered_integers(task) &&
        !works(static_cast<cudaError_t>(
            device_kernels::to_ordered_integers(task.to, task.count, stream_)))) {
      return NcclStatus::kDeviceError;
    }
    return nccl_status(launch(nccl(comm), task));
  }

  NcclStatus conclude(const DeviceTask& task, DeviceEvent done) override {
    if (as_ordered_integers(task)) {
      if (!works(static_cast<cudaError_t>(
              device_kernels::from_ordered_integers(task.to, task.count, stream_)))) {
        return NcclStatus::kDeviceError;
      }
    }
    return record(done);
  }

  NcclStatus finalize(NcclComm comm) override { return nccl_status(ncclCommFinalize(nccl(comm))); }

  NcclStatus destroy(NcclComm comm) override {
    const std::unique_ptr<CommHandle> handle(static_cast<CommHandle*>(comm));
    return nccl_status(ncclCommDestroy(handle->comm));
  }

  NcclStatus abort(NcclComm comm) override {
    const std::unique_ptr<CommHandle> handle(static_cast<CommHandle*>(comm));
    return handle && handle->comm != nullptr ? nccl_status(ncclCommAbort(handle->comm))
                                             : NcclStatus::kSuccess;
  }

  NcclStatus create_event(DeviceEvent& event) override {
    cudaEvent_t made = nullptr;
    const NcclStatus status = cuda(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    event = made;
    return status;
  }
  void destroy_event(DeviceEvent event) override { (void)cudaEventDestroy(cuda_event(event)); }
  NcclStatus record(DeviceEvent event) override {
    return cuda(cudaEventRecord(cuda_event(event), stream_));
  }
  NcclStatus record_on(DeviceStream stream, DeviceEvent event) override {
    return cuda(cudaEventRecord(cuda_event(event), static_cast<cudaStream_t>(stream)));
  }
  NcclStatus query(DeviceEvent event) override {
    const cudaError_t happened = cudaEventQuery(cuda_event(event));
    if (happened == cudaErrorNotReady) {
      (void)cudaGetLastError();  // "not ready" is no error; the next check must not find one
      return NcclStatus::kInProgress;
    }
    return cuda(happened);
  }
  NcclStatus hold_for(DeviceEvent event) override {
    return cuda(cudaStreamWaitEvent(stream_, cuda_event(event), 0));
  }

  void* scratch_word() override { return scratch_; }

 private:
  static ncclComm_t nccl(NcclComm comm) { return static_cast<CommHandle*>(comm)->comm; }
  static cudaEvent_t cuda_event(DeviceEvent event) { return static_cast<cudaEvent_t>(event); }

  bool works(cudaError_t result) {
    if (result == cudaSuccess) {
      return true;
    }
    (void)cudaGetLastError();
    const std::lock_guard lock(mutex_);
    cuda_error_ = cudaGetErrorString(result);
    return false;
  }
  NcclStatus cuda(cudaError_t result) {
    return works(result) ? NcclStatus::kSuccess : NcclStatus::kDeviceError;
  }

  // A failure of NCCL is described by NCCL, whatever error CUDA had before.
  NcclStatus nccl_status(ncclResult_t result) {
    const NcclStatus status = status_of(result);
    if (status != NcclStatus::kSuccess && status != NcclStatus::kInProgress) {
      const std::lock_guard lock(mutex_);
      cuda_error_.clear();
    }
    return status;
  }

  // If NCCL were given ordinary host memory, the device would fault, and this process could not use
  // it any more.
  bool reachable(const void* data) {
    cudaPointerAttributes attributes{};
    if (!works(cudaPointerGetAttributes(&attributes, data))) {
      return false;
    }
    if (attributes.type == cudaMemoryTypeUnregistered) {
      const std::lock_guard lock(mutex_);
      cuda_error_ = "a buffer is ordinary host memory; give device memory";
      return false;
    }
    return true;
  }

  ncclResult_t launch(ncclComm_t comm, const DeviceTask& task) {
    switch (task.kind) {
      case DeviceTask::Kind::kAllReduce:
        return ncclAllReduce(task.from, task.to, task.count, wire_type(task), wire_op(task.op),
                             comm, stream_);
      case DeviceTask::Kind::kBroadcast:
        return ncclBroadcast(task.from, task.to, task.count, ncclUint8, static_cast<int>(task.root),
                             comm, stream_);
      case DeviceTask::Kind::kAllGather:
        return ncclAllGather(task.from, task.to, task.count, ncclUint8, comm, stream_);
    }
    UNREACHABLE("every kind of task is launched");
  }

  const int device_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  std::mutex mutex_;
  std::string cuda_error_;  // the last error, until it is read; guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<NcclApi>> make_cuda_nccl_api(int device) {
  auto api = std::make_unique<CudaNcclApi>(device);
  TRY(api->open());
  return std::unique_ptr<NcclApi>(std::move(api));
}

}  // namespace mayfly::collectives
