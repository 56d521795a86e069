#include "observe/report.hpp"

#include <algorithm>
#include <boost/beast/core/detail/base64.hpp>
#include <boost/beast/zlib/deflate_stream.hpp>

#include "base/check.hpp"
#include "observe/core/report_page.hpp"
#include "observe/page_text.hpp"

namespace mayfly::observe {
namespace {

namespace zlib = boost::beast::zlib;

constexpr int kDeflateLevel = 6;
constexpr int kWindowBits = 15;
constexpr int kMemoryLevel = 8;

/// Raw deflate, as base64.
std::string packed(const std::string& bytes) {
  zlib::deflate_stream deflater;
  deflater.reset(kDeflateLevel, kWindowBits, kMemoryLevel, zlib::Strategy::normal);
  std::string small(deflater.upper_bound(bytes.size()) + 64, '\0');
  zlib::z_params parameters;
  parameters.next_in = bytes.data();
  parameters.avail_in = bytes.size();
  parameters.next_out = small.data();
  parameters.avail_out = small.size();
  boost::system::error_code failure;
  deflater.write(parameters, zlib::Flush::finish, failure);
  ENSURE(!failure || failure == zlib::error::end_of_stream, "memory can be deflated");
  small.resize(parameters.total_out);
  std::string text(boost::beast::detail::base64::encoded_size(small.size()), '\0');
  text.resize(boost::beast::detail::base64::encode(text.data(), small.data(), small.size()));
  return text;
}

std::string series_of(const Curves& curves, std::size_t buckets_max) {
  const std::size_t level = curves.level_for(buckets_max);
  const std::size_t count = curves.buckets(level);
  return "{\"level\":" + std::to_string(level) + ",\"count\":" + std::to_string(count) +
         ",\"data\":\"" + packed(curves.pack(level, 0, count)) + "\"}";
}

}  // namespace

std::string report_of(const std::vector<RunFollower*>& runs, double made) {
  const std::size_t most = kReportBucketsMax / std::max<std::size_t>(1, runs.size());
  std::string data = "{\"made\":" + std::to_string(made) + ",\"runs\":[";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFold& fold = runs[i]->fold();
    data += i == 0 ? "" : ",";
    data += "{\"state\":" + fold.state_json(runs[i]->name()) +
            ",\"kept\":" + series_of(fold.kept(), most) +
            ",\"undone\":" + series_of(fold.undone(), most / 4) + "}";
  }
  data += "]}";
  return report_page(kPage, kScriptHash, kStyleHash, data);
}

}  // namespace mayfly::observe
