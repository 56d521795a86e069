#include "base/address_list.hpp"

#include <netdb.h>

namespace mayfly {

void FreeAddresses::operator()(addrinfo* list) const {
  ::freeaddrinfo(list);
}

}  // namespace mayfly
