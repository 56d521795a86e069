#pragma once

#include "collectives/group.hpp"
#include "elastic/net/member_client.hpp"

namespace mayfly::engine {

/// The rendezvous store of one view, kept by the coordinator and reached over the control
/// connection.
class RendezvousOverControl final : public collectives::RendezvousStore {
 public:
  RendezvousOverControl(elastic::MemberClient& client, ViewId view)
      : client_(client), view_(view) {}

  Result<void> set(const std::string& key, ByteSpan value) override {
    return client_.store_set(view_, key, value);
  }
  Result<Bytes> get(const std::string& key, Instant deadline) override {
    return client_.store_get(view_, key, deadline);
  }

 private:
  elastic::MemberClient& client_;
  ViewId view_;
};

}  // namespace mayfly::engine
