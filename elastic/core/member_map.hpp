#pragma once

// A map by member id, in the order of the ids. It is made for thousands of members, of which one is
// looked up for every message and all are visited at every change of view. Ids are assigned in
// ascending order, so new members are added at the end, and while few have left, a member's index
// is near its id minus the lowest id. As with std::map, references stay valid until their member is
// erased; iterators do not. One thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace mayfly::elastic {

/// The index of the first id that is not below `id` among `size` ascending ids, `id_at(index)`. An
/// id that is n higher than the lowest one is at most n places behind it; the search begins there
/// and goes back in strides that double, so it is shorter the fewer ids are missing.
[[nodiscard]] std::size_t place_among(std::size_t size, MemberId id, auto id_at) {
  if (size == 0 || id <= id_at(0)) {
    return 0;
  }
  auto high = static_cast<std::size_t>(std::min<std::uint64_t>(value(id) - value(id_at(0)), size));
  std::size_t low = high;
  for (std::size_t stride = 1; low > 0 && (low == size || id_at(low) >= id); stride *= 2) {
    high = low;
    low -= std::min(low, stride);
  }
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (id_at(middle) < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <typename T>
class MemberMap {
 public:
  using value_type = std::pair<const MemberId, T>;

 private:
  using Entries = std::vector<std::unique_ptr<value_type>>;

  template <typename Entry>
  class Place {
   public:
    using iterator_category = std::forward_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = std::remove_const_t<Entry>;
    using pointer = Entry*;
    using reference = Entry&;

    Place() = default;
    explicit Place(typename Entries::const_iterator at) : at_(at) {}

    Entry& operator*() const { return **at_; }
    Entry* operator->() const { return at_->get(); }
    Place& operator++() {
      ++at_;
      return *this;
    }
    Place operator++(int) { return Place(at_++); }
    friend bool operator==(const Place&, const Place&) = default;

   private:
    typename Entries::const_iterator at_{};
  };

 public:
  using iterator = Place<value_type>;
  using const_iterator = Place<const value_type>;

  [[nodiscard]] iterator begin() { return iterator(entries_.begin()); }
  [[nodiscard]] iterator end() { return iterator(entries_.end()); }
  [[nodiscard]] const_iterator begin() const { return const_iterator(entries_.begin()); }
  [[nodiscard]] const_iterator end() const { return const_iterator(entries_.end()); }
  [[nodiscard]] std::size_t size() const { return ids_.size(); }
  [[nodiscard]] bool empty() const { return ids_.empty(); }

  /// end() if there is no member with this id.
  [[nodiscard]] iterator find(MemberId id) { return iterator(entries_.begin() + found(id)); }
  [[nodiscard]] const_iterator find(MemberId id) const {
    return const_iterator(entries_.begin() + found(id));
  }
  /// The first member whose id is not below this one.
  [[nodiscard]] iterator lower_bound(MemberId id) {
    return iterator(entries_.begin() + static_cast<std::ptrdiff_t>(place_of(id)));
  }
  /// The member with this id, and true if it is new and was constructed from `arguments`.
  template <typename... Arguments>
  std::pair<iterator, bool> try_emplace(MemberId id, Arguments&&... arguments) {
    const std::size_t place = place_of(id);
    const auto at = static_cast<std::ptrdiff_t>(place);
    const bool is_new = place == size() || ids_[place] != id;
    if (is_new) {
      entries_.insert(entries_.begin() + at,
                      std::make_unique<value_type>(
                          std::piecewise_construct, std::forward_as_tuple(id),
                          std::forward_as_tuple(std::forward<Arguments>(arguments)...)));
      ids_.insert(ids_.begin() + at, id);
    }
    return {iterator(entries_.begin() + at), is_new};
  }
  /// A new member is default-constructed.
  T& operator[](MemberId id) { return try_emplace(id).first->second; }
  /// Unknown ids are ignored.
  void erase(MemberId id) {
    const std::ptrdiff_t at = found(id);
    if (static_cast<std::size_t>(at) < size()) {
      entries_.erase(entries_.begin() + at);
      ids_.erase(ids_.begin() + at);
    }
  }

 private:
  [[nodiscard]] std::size_t place_of(MemberId id) const {
    return place_among(size(), id, [this](std::size_t place) { return ids_[place]; });
  }
  [[nodiscard]] std::ptrdiff_t found(MemberId id) const {
    const std::size_t place = place_of(id);
    const bool is_there = place < size() && ids_[place] == id;
    return static_cast<std::ptrdiff_t>(is_there ? place : size());
  }

  std::vector<MemberId> ids_;
  Entries entries_;  // at the same indices
};

}  // namespace mayfly::elastic
