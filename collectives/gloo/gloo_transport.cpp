#include "collectives/gloo/gloo_transport.hpp"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>

#include "base/parse.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "collectives/gloo/gloo_engine.hpp"
#include "collectives/queued_group.hpp"

namespace mayfly::collectives {
namespace {

using Device = std::shared_ptr<gloo::transport::Device>;  // shared with Gloo's pairs

// How long a wait for a key lasts before the thread checks whether the view was given up.
constexpr milliseconds kStoreSlice{50};

// Ends connectFullMesh() from inside the store.
struct StoreFailed : std::runtime_error {
  explicit StoreFailed(Error failure)
      : std::runtime_error(failure.detail), error(std::move(failure)) {}
  Error error;
};

// Gloo's access to the view's store. It also reads the pairs' addresses from the values that pass.
class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(const GroupSpec& spec, GlooAborter& aborter, Instant deadline)
      : spec_(spec),
        aborter_(aborter),
        deadline_(deadline),
        prefix_(fmt::format("gloo/{}/{:x}/", value(spec.view), spec.key)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const ByteSpan bytes = std::as_bytes(std::span(data));
    if (rank_of(key)) {
      aborter_.note_addresses(bytes, pair_count());
    }
    if (const Result<void> stored = spec_.store->set(prefix_ + key, bytes); !stored.ok()) {
      throw StoreFailed(stored.error());
    }
  }

  std::vector<char> get(const std::string& key) override {
    while (true) {
      if (aborter_.aborted()) {
        throw StoreFailed({Errc::kAborted, "the view was given up"});
      }
      const Instant slice = std::min(deadline_, monotonic_now() + kStoreSlice);
      const Result<Bytes> got = spec_.store->get(prefix_ + key, slice);
      if (got.ok()) {
        listen_in(key, got.value());
        const auto* const first = reinterpret_cast<const char*>(got.value().data());
        return {first, first + got.value().size()};
      }
      if (got.error().code != Errc::kDeadline || monotonic_now() >= deadline_) {
        throw StoreFailed(blame(key, got.error()));
      }
    }
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      (void)get(key);
    }
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);  // the formation's deadline counts
  }

 private:
  [[nodiscard]] std::size_t pair_count() const { return spec_.peers.size() - 1; }

  // The rank whose addresses are stored at this key: rank 3 stores them at "3". (Its host name is
  // at "rank_3".)
  [[nodiscard]] std::optional<std::size_t> rank_of(const std::string& key) const {
    return number_in<std::size_t>(key, 0, spec_.peers.size() - 1);
  }

  // A rank publishes one address for each other rank, in order; one of them is for this member.
  void listen_in(const std::string& key, ByteSpan published) {
    const std::optional<std::size_t> rank = rank_of(key);
    const std::size_t each = published.size() / pair_count();
    if (rank) {
      const std::size_t us = value(spec_.rank);
      aborter_.note_addresses(published.subspan((us > *rank ? us - 1 : us) * each, each), 1);
    }
  }

  // Names the member whose key, "rank_3" or "3", has not been set.
  Error blame(const std::string& key, Error error) const {
    const std::optional<std::size_t> rank = rank_of(key.substr(key.rfind('_') + 1));
    if (rank && error.code == Errc::kDeadline) {
      error.culprit = spec_.peers[*rank].member;
    }
    return error;
  }

  const GroupSpec& spec_;
  GlooAborter& aborter_;
  const Instant deadline_;
  const std::string prefix_;
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(Device device, std::string host)
      : device_(std::move(device)), host_(std::move(host)) {}

  // Members meet in the store; the address is only shown.
  std::string address() const override { return "gloo:" + host_; }

  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    TRY(check_spec(spec));
    const auto aborter = std::make_shared<GlooAborter>();
    const FormingGuard::Entry entry = guard_.enter(spec.view, [aborter] { aborter->abort(); });
    const auto size = static_cast<std::uint32_t>(spec.peers.size());
    std::unique_ptr<GroupEngine> engine;
    if (size > 1) {
      TRY_ASSIGN(engine, connect(spec, aborter, deadline));
      TRY(run_first_barrier(*engine, 0, deadline));
    }
    if (aborter->aborted()) {
      return given_up(spec.view);
    }
    return make_queued_group(spec.view, spec.rank, size, std::move(engine));
  }

  void give_up_on(ViewId view) noexcept override { guard_.give_up_on(view); }

 private:
  Result<std::unique_ptr<GroupEngine>> connect(const GroupSpec& spec,
                                               const std::shared_ptr<GlooAborter>& aborter,
                                               Instant deadline) {
    if (spec.store == nullptr) {
      return Error{Errc::kInvalidInput, "a gloo group cannot form without a rendezvous store"};
    }
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(value(spec.rank)),
                                                               static_cast<int>(spec.peers.size()));
    // A pair may have to wait for a member that itself waits for a late one, so only the formation
    // as a whole has a deadline.
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - monotonic_now());
    context->setTimeout(std::max(left, std::chrono::milliseconds(1)));
    try {
      StoreAdapter store(spec, *aborter, deadline);
      context->connectFullMesh(store, device_);
    } catch (const StoreFailed& failed) {
      return failed.error;
    } catch (const std::exception& failed) {
      if (aborter->aborted()) {
        return given_up(spec.view);
      }
      const bool late = monotonic_now() >= deadline;
      return Error{late ? Errc::kDeadline : Errc::kPeerLost, reason_of(failed)};
    }
    aborter->capture_sockets();
    return make_gloo_engine(std::move(context), spec.peers, aborter);
  }

  Device device_;
  const std::string host_;
  FormingGuard guard_;
};

// One device, with one thread, per process and interface. Never destroyed: Gloo's thread must not
// be joined while the process exits with groups alive.
Device shared_device(const std::string& host) {
  static std::mutex mutex;
  static auto& devices = *new std::map<std::string, Device>();
  const std::lock_guard lock(mutex);
  Device& device = devices[host];
  if (!device) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = host;
    device = gloo::transport::tcp::CreateDevice(attributes);
  }
  return device;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_gloo_transport(const GlooOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return std::unique_ptr<Transport>(
        std::make_unique<GlooTransport>(shared_device(options.bind_host), options.bind_host));
  } catch (const std::exception& failed) {
    return Error{Errc::kIo, fmt::format("cannot use {}: {}", options.bind_host, reason_of(failed))};
  }
}

}  // namespace mayfly::collectives
