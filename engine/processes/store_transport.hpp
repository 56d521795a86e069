#pragma once

// Lets the members of a view know where each other's stores of images are (datasets/peer_stores).
// The address of a store travels with that of the gradient transport, which everybody has of
// everybody, and the stores are told of views as the transport is; so nothing else of a job knows
// of them.

#include <memory>

#include "collectives/group.hpp"
#include "datasets/peer_stores.hpp"

namespace mayfly::engine {

/// `inner`, whose address also has that of the store; null: this worker has none, but others may.
/// Threads as for `inner`.
[[nodiscard]] std::unique_ptr<collectives::Transport> make_store_transport(
    std::unique_ptr<collectives::Transport> inner, std::shared_ptr<datasets::PeerStores> stores);

}  // namespace mayfly::engine
