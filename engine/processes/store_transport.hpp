#pragma once

// Gives the image stores of a view's members each other's addresses (datasets/peer_stores). A
// member's address for the gradient transport, which views contain, also contains the address of
// its store. Forming a group and giving up on a view notify the stores. Therefore no other part of
// the engine depends on them.

#include <memory>

#include "collectives/group.hpp"
#include "datasets/peer_stores.hpp"

namespace mayfly::engine {

/// Wraps `inner`; the address of the result also contains that of `stores`. Null stores: this
/// worker has none, but other workers may. Threads as for `inner`.
[[nodiscard]] std::unique_ptr<collectives::Transport> make_store_transport(
    std::unique_ptr<collectives::Transport> inner, std::shared_ptr<datasets::PeerStores> stores);

}  // namespace mayfly::engine
