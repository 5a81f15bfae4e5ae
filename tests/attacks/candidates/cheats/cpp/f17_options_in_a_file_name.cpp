// class: F17
// mechanism: a file whose name begins with @ is read by compilers as a file of options
// expect: did_not_build
// reason: file name
// file: @main.cpp
// naive: by hand: it compiles with the user's rights
-x c++ -fplugin=/nowhere.so honest.h
