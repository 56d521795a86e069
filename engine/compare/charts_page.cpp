#include "engine/compare/charts_page.hpp"

#include <fmt/format.h>
#include <string_view>

#include "base/check.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {

// Written by observe/page/embed.py when Mayfly is built: the page with its script, its style and
// uPlot inside, and the sources that its policy allows.
extern const std::string_view kPage;
extern const std::string_view kScriptHash;
extern const std::string_view kStyleHash;

namespace {

void put_at(std::string& page, std::string_view mark, const std::string& text) {
  const std::size_t place = page.find(mark);
  ENSURE(place != std::string::npos, "the page has a place for what a report adds");
  page.replace(place, mark.size(), text);
}

/// JSON in which no tag can begin, whatever its texts are.
std::string without_tags(const std::string& json) {
  std::string safe;
  for (const char c : json) {
    safe += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return safe;
}

}  // namespace

std::string to_html(const ChartsPage& page) {
  std::string html(kPage);
  put_at(html, "<!-- policy -->",
         fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "script-src {}; style-src {}; img-src data:\">",
                     kScriptHash, kStyleHash));
  put_at(html, "<!-- data -->",
         fmt::format("<script type=\"application/json\" id=\"data\">{}</script>",
                     without_tags(json_text(object_of(page)))));
  return html;
}

}  // namespace mayfly::engine
