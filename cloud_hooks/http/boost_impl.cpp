// The one place where Asio's TLS functions (see BOOST_ASIO_SEPARATE_COMPILATION) are compiled, and
// Boost.URL, which is used without its library.

#include <boost/asio/ssl/impl/src.hpp>
#include <boost/url/src.hpp>
