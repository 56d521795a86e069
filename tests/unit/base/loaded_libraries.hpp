#pragma once

#include <link.h>

#include <cstddef>
#include <string>

namespace mayfly::test_support {

/// Whether this process has loaded a library whose path contains `part`.
inline bool is_loaded(const std::string& part) {
  struct Search {
    std::string part;
    bool found = false;
  } search{part};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        s.found = s.found || std::string(info->dlpi_name).find(s.part) != std::string::npos;
        return 0;
      },
      &search);
  return search.found;
}

}  // namespace mayfly::test_support
