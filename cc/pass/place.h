// Where a policy finds bytes: arguments of a function, and fields behind them.
//
//     place     = sum
//     sum       = operand { ("+" | "-") operand }
//     operand   = "#" NUMBER | ARGUMENT { "->" FIELD [ "(" STRUCT ")" ] }
//     condition = sum "&" NUMBER
//
// FIELD is a member's name, found through the debug information of the function that the argument belongs to; STRUCT says
// what a field that is declared as void * or char * points to.
//
// Invariant: what cannot be resolved stops the compiler with the reason; nothing is guessed.
#ifndef STEADFAST_PASS_PLACE_H
#define STEADFAST_PASS_PLACE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/IRBuilder.h"
#include <string>

namespace steadfast {

// Evaluates a sum over these arguments of a function, as 64 bits. On failure gives nothing and says why.
llvm::Value *placeOf(llvm::IRBuilder<> &, const llvm::Function &Of, llvm::ArrayRef<llvm::Value *> Arguments, llvm::StringRef Text,
                     std::string &Why);

} // namespace steadfast

#endif
