#pragma once

// What makes a page a report: one HTML file with its numbers inside, which opens from a disk
// without a network. Pure; any thread.

#include <string>
#include <string_view>

namespace mayfly::observe {

/// `page` with its data, in which no tag can begin whatever the texts of `json` are, and with a
/// policy that allows nothing but its own script and style, of these hashes. "<!-- policy -->" and
/// "<!-- data -->" are the places for them.
[[nodiscard]] std::string report_page(std::string_view page, std::string_view script_hash,
                                      std::string_view style_hash, std::string_view json);

}  // namespace mayfly::observe
