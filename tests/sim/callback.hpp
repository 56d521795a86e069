#pragma once

// Something to call once or more, stored in place: a simulated job is millions of small events, and
// std::function would allocate for most of them.

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace mayfly::sim {

/// Moves only. What it holds must fit `Size` bytes and move without throwing.
template <std::size_t Size, typename... Arguments>
class Callback {
 public:
  Callback() = default;
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Callback>>>
  Callback(F&& what) {  // NOLINT: as std::function
    using Stored = std::decay_t<F>;
    static_assert(sizeof(Stored) <= Size && alignof(Stored) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Stored>);
    new (storage_) Stored(std::forward<F>(what));
    operations_ = &kOperations<Stored>;
  }
  Callback(Callback&& other) noexcept { take(other); }
  Callback& operator=(Callback&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Callback() { reset(); }

  void operator()(Arguments... arguments) { operations_->call(storage_, arguments...); }

 private:
  struct Operations {
    void (*call)(void*, Arguments...);
    void (*move)(void* from, void* to);  // and destroys what was moved
    void (*destroy)(void*);
  };
  template <typename Stored>
  static constexpr Operations kOperations = {
      [](void* at, Arguments... arguments) { (*static_cast<Stored*>(at))(arguments...); },
      [](void* from, void* to) {
        new (to) Stored(std::move(*static_cast<Stored*>(from)));
        static_cast<Stored*>(from)->~Stored();
      },
      [](void* at) { static_cast<Stored*>(at)->~Stored(); }};

  void take(Callback& other) {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) {
      operations_->move(other.storage_, storage_);
    }
  }
  void reset() {
    if (operations_ != nullptr) {
      std::exchange(operations_, nullptr)->destroy(storage_);
    }
  }

  alignas(std::max_align_t) std::byte storage_[Size];
  const Operations* operations_ = nullptr;
};

}  // namespace mayfly::sim
