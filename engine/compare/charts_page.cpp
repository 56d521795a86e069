#include "engine/compare/charts_page.hpp"

#include <string_view>

#include "engine/run/record_json.hpp"
#include "observe/core/report_page.hpp"

namespace mayfly::engine {

// Written by observe/page/embed.py when Mayfly is built: the page, which contains its script, its
// style and uPlot, and the hashes of the sources that its policy allows.
extern const std::string_view kPage;
extern const std::string_view kScriptHash;
extern const std::string_view kStyleHash;

std::string to_html(const ChartsPage& page) {
  return observe::report_page(kPage, kScriptHash, kStyleHash, json_text(object_of(page)));
}

}  // namespace mayfly::engine
