#pragma once

#include <memory>

struct addrinfo;

namespace mayfly {

struct FreeAddresses {
  void operator()(addrinfo* list) const;
};
/// The list that getaddrinfo returned; freed with its owner.
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

}  // namespace mayfly
