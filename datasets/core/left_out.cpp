#include "datasets/core/left_out.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::datasets {

void LeftOut::add(std::string name) {
  count += 1;
  if (names.size() < kNamesMax) {
    name.resize(std::min(name.size(), kNameBytesMax));
    names.push_back(std::move(name));
  }
}

std::string LeftOut::sentence() const {
  std::string out = std::to_string(count) +
                    (count == 1 ? " unusable image is left out" : " unusable images are left out");
  for (const std::string& name : names) {
    out += (&name == &names.front() ? ": " : ", ") + name;
  }
  return count > names.size() ? out + " and " + std::to_string(count - names.size()) + " more"
                              : out;
}

}  // namespace mayfly::datasets
