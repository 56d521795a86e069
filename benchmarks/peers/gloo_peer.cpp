// A rank of `mayfly bench allreduce` that calls Gloo's own gloo::allreduce: the ring, with the
// library's defaults.

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <filesystem>
#include <memory>

#include "benchmarks/ranks/rank_session.hpp"

namespace {

using namespace mayfly;  // NOLINT: a program

constexpr std::chrono::seconds kTimeout(60);

class GlooReducer final : public bench::AllReducer {
 public:
  explicit GlooReducer(std::string folder) : folder_(std::move(folder)) {}

  Result<void> connect(std::uint32_t rank, std::uint64_t,
                       const std::vector<std::string>& addresses) override {
    try {
      std::filesystem::create_directory(folder_);
      gloo::transport::tcp::attr where;
      where.hostname = "127.0.0.1";
      gloo::rendezvous::FileStore files(folder_);
      gloo::rendezvous::PrefixStore store("peer", files);
      auto context = std::make_shared<gloo::rendezvous::Context>(
          static_cast<int>(rank), static_cast<int>(addresses.size()));
      context->setTimeout(kTimeout);
      auto device = gloo::transport::tcp::CreateDevice(where);
      context->connectFullMesh(store, device);
      context_ = context;
      return {};
    } catch (const std::exception& failure) {
      return Error{Errc::kPeerLost, failure.what()};
    }
  }

  Result<void> sum(void* data, std::size_t count, collectives::DataType type) override {
    try {
      if (type == collectives::DataType::kFloat32) {
        sum_of(static_cast<float*>(data), count);
      } else {
        sum_of(static_cast<std::int32_t*>(data), count);
      }
      return {};
    } catch (const std::exception& failure) {
      return Error{Errc::kPeerLost, failure.what()};
    }
  }

 private:
  template <typename T>
  void sum_of(T* data, std::size_t count) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data, count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<T>));
    gloo::allreduce(options);
  }

  std::string folder_;  // where the ranks exchange addresses
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // Gloo writes to sockets without MSG_NOSIGNAL
  const Result<bench::RankOptions> options = bench::parse_rank_options({argv + 1, argv + argc});
  if (!options.ok()) {
    return 2;
  }
  const std::filesystem::path control = options.value().control;
  GlooReducer reducer((control.parent_path() / (options.value().name + ".store")).string());
  return bench::serve_rank(options.value(), reducer);
}
