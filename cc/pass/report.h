// What was hardened in this module and what was not, as text lines in the object's section .steadfast.cov.
//
// The driver reads the section of a linked program: it follows calls from the handlers, turns what cannot be hardened
// on these ways into errors, and prints coverage. Fields are separated by tabs; the first is the kind:
//
//     M file                          a module begins
//     H function kind where           a handler
//     F function where logged stack ignored ranges once loops    a clone, and its stores by treatment
//     C function callee class where   a call; class as in config.h, or weak: may be missing; callee may be an original name
//     B function                      called as the library's, by a class that is built in
//     I function where                an indirect call
//     S alias function                another name of a function
//     A function                      may be reached by indirect calls
//     R function what where           a refused construct: stops the program if it is reached
//     P sei                           this module has no check that the paper's rules do not have (--protect=sei)
//     Y async                         this module keeps what handlers read, for a second run that comes later
//     D functions checks              code outside handlers that is computed twice
//     K function                      named by a policy's output, keeps, carries or later, and here
//     N name                          named by a policy's statement about a function or variable, and here
//     L where what                    one line of source, for --explain
//
// A function with internal linkage is named FILE:NAME, since names of different modules may coincide.
//
// Invariant: the section is not loaded at run time and names no symbol, so it costs nothing and survives strip(1).
#ifndef STEADFAST_PASS_REPORT_H
#define STEADFAST_PASS_REPORT_H

#include "llvm/IR/Function.h"
#include "llvm/IR/Instruction.h"
#include "llvm/IR/Module.h"
#include <set>
#include <string>

namespace steadfast {

// FILE:LINE of an instruction; the function's own line, or only the file, where the compiler kept no more.
std::string whereIs(const llvm::Instruction &);
std::string whereIs(const llvm::Function &);
std::string idOf(const llvm::Function &);

class Report {
public:
  explicit Report(const llvm::Module &);
  void line(std::initializer_list<llvm::StringRef> Fields);
  // A line that is written once, however often it is reported.
  void once(std::initializer_list<llvm::StringRef> Fields);
  void writeTo(llvm::Module &) const;

private:
  std::string Text;
  std::set<std::string> Seen;
};

} // namespace steadfast

#endif
