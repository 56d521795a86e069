#pragma once

// A parameter server: some shards of the parameters, and this process's part in the job.

#include <memory>
#include <string>

#include "elastic/net/member_client.hpp"
#include "engine/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class PsServer {
 public:
  /// Listens with the shards of config.ps_index. `job` and `layout` outlive it; `initial` is
  /// copied. kIo, kInvalidInput.
  static Result<std::unique_ptr<PsServer>> start(const Job& job, const ReductionLayout& layout,
                                                 const nn::ModelState& initial);
  ~PsServer();

  /// What to join the job with: where the shards are.
  [[nodiscard]] std::string address() const;
  /// Serves until told to leave, and until no worker is connected any more; returns that order.
  elastic::member_effect::Leave run(elastic::MemberClient& client);

 private:
  struct Parts;
  explicit PsServer(std::unique_ptr<Parts> parts);
  void report(elastic::MemberClient& client) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace mayfly::engine
