#pragma once

// The setting cloud_offers as a text, so that it can be a flag: what may be asked for, each offer
// as TYPE@ZONE:MARKET=PRICE*SPEED, with commas between them. Only TYPE or ZONE must be there:
// "n1-standard-8@us-central1-a:spot=0.12*1.0", "@gpu-partition", "small:on_demand=0.5".

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"

namespace mayfly::engine {

/// In the order of the text; an empty text has none. kInvalidInput with the offer that is wrong.
[[nodiscard]] Result<std::vector<cloud_hooks::OfferTerms>> parse_offers(const std::string& text);

/// What cloud_provider may be.
[[nodiscard]] std::vector<std::string> cloud_provider_names();

}  // namespace mayfly::engine
