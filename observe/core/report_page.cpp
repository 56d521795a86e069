#include "observe/core/report_page.hpp"

#include "base/check.hpp"

namespace mayfly::observe {
namespace {

void put_at(std::string& page, std::string_view mark, const std::string& text) {
  const std::size_t place = page.find(mark);
  ENSURE(place != std::string::npos, "the page has a place for what a report adds");
  page.replace(place, mark.size(), text);
}

}  // namespace

std::string report_page(std::string_view page, std::string_view script_hash,
                        std::string_view style_hash, std::string_view json) {
  std::string policy =
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src ";
  policy.append(script_hash).append("; style-src ").append(style_hash);
  policy += "; img-src data:; base-uri 'none'; form-action 'none'\">";
  std::string data = "<script type=\"application/json\" id=\"data\">";
  for (const char c : json) {
    if (c == '<') {
      data += "\\u003c";
    } else {
      data += c;
    }
  }
  data += "</script>";
  std::string report(page);
  put_at(report, "<!-- policy -->", policy);
  put_at(report, "<!-- data -->", data);
  return report;
}

}  // namespace mayfly::observe
