#include "engine/processes/store_transport.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace mayfly::engine {
namespace {

// A field that the tcp transport skips in addresses (collectives/tcp). Other transports never get
// it.
constexpr std::string_view kField = ";images:";

class StoreTransport final : public collectives::Transport {
 public:
  StoreTransport(std::unique_ptr<collectives::Transport> inner,
                 std::shared_ptr<datasets::PeerStores> stores)
      : inner_(std::move(inner)), stores_(std::move(stores)) {}

  [[nodiscard]] std::string address() const override {
    return stores_ == nullptr ? inner_->address()
                              : inner_->address() + std::string(kField) + stores_->address();
  }

  [[nodiscard]] Result<std::unique_ptr<collectives::Group>> form(const collectives::GroupSpec& spec,
                                                                 Instant deadline) override {
    collectives::GroupSpec without = spec;
    std::vector<std::string> stores;
    for (auto& peer : without.peers) {
      const std::size_t field = peer.address.find(kField);
      if (field != std::string::npos) {  // some workers may have no store
        stores.push_back(peer.address.substr(field + kField.size()));
        peer.address.resize(field);
      }
    }
    if (stores_ != nullptr) {
      stores_->begin_view({.view = value(spec.view), .key = spec.key}, stores);
    }
    return inner_->form(without, deadline);
  }

  void give_up_on(ViewId view) noexcept override {
    if (stores_ != nullptr) {
      stores_->end_view(value(view));
    }
    inner_->give_up_on(view);
  }

 private:
  const std::unique_ptr<collectives::Transport> inner_;
  const std::shared_ptr<datasets::PeerStores> stores_;
};

}  // namespace

std::unique_ptr<collectives::Transport> make_store_transport(
    std::unique_ptr<collectives::Transport> inner, std::shared_ptr<datasets::PeerStores> stores) {
  return std::make_unique<StoreTransport>(std::move(inner), std::move(stores));
}

}  // namespace mayfly::engine
