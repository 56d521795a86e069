// The one place where Asio's TLS functions are compiled; see BOOST_ASIO_SEPARATE_COMPILATION.

#include <boost/asio/ssl/impl/src.hpp>
