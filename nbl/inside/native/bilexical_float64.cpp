// bilexical.cpp in double precision
#define NBL_FLOAT double
#include "bilexical.cpp"
