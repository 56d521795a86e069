#pragma once

// The setting cloud_offers as a text, so that it can be a flag: what may be asked for, each offer
// as TYPE@ZONE:MARKET=PRICE*SPEED#MOST, with commas between them. Only TYPE or ZONE must be there:
// "n1-standard-8@us-central1-a:spot=0.12*1.0", "@gpu-partition", "small:on_demand=0.5#2".
// The setting cloud_composition says how many workers of which of them are wanted:
// "2 x n1-standard-8@us-central1-a + 1 x small".

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/offer_catalog.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// In the order of the text; an empty text has none. kInvalidInput with the name of the setting and
/// the offer that is wrong.
[[nodiscard]] Result<std::vector<cloud_hooks::OfferTerms>> parse_offers(
    const std::string& text, const std::string& setting = "cloud_offers");

/// The offers for workers, with the numbers of cloud_composition. kInvalidInput, with the part that
/// is wrong, if it cannot be read, does not name exactly one offer each, has another number of
/// workers than the job or more than an offer's limit, or does not fit other settings.
[[nodiscard]] Result<std::vector<cloud_hooks::OfferTerms>> worker_offers(const JobConfig& config);

/// The offer as the settings write it, without its price: "TYPE@ZONE:MARKET".
[[nodiscard]] std::string offer_name(const cloud_hooks::Offer& offer);

/// For workers that compute on GPUs: kInvalidInput if the machine type of an offer is known to have
/// none, or one that is too old; and, if all workers must compute the same bits, if two offers are
/// known to have different ones. What is not known is left to the workers. Pure.
[[nodiscard]] Result<void> check_gpus(const std::vector<cloud_hooks::OfferTerms>& offers,
                                      bool must_be_equal);

/// Whether workers on servers compute on GPUs: by cloud_worker_args, or else by the job's device.
[[nodiscard]] bool servers_use_cuda(const JobConfig& config);

/// Whether the types of offers are a cloud's machine types: not Slurm's constraints, for example.
[[nodiscard]] bool names_cloud_machines(const JobConfig& config);

/// What cloud_provider may be.
[[nodiscard]] std::vector<std::string> cloud_provider_names();

}  // namespace mayfly::engine
