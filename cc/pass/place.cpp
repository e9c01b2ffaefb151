// See place.h.
//
// Not covered: bit fields, members of classes with virtual bases, arrays of structures.

#include "place.h"

#include "llvm/BinaryFormat/Dwarf.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace steadfast {

namespace {

// Without names given to it and what says nothing about its layout.
const DIType *bare(const DIType *T) {
  while (auto *D = dyn_cast_or_null<DIDerivedType>(T)) {
    switch (D->getTag()) {
    case dwarf::DW_TAG_typedef:
    case dwarf::DW_TAG_const_type:
    case dwarf::DW_TAG_volatile_type:
    case dwarf::DW_TAG_restrict_type:
    case dwarf::DW_TAG_atomic_type:
      T = D->getBaseType();
      continue;
    default:
      return T;
    }
  }
  return T;
}

bool isArray(const DICompositeType *C) { return C && C->getTag() == dwarf::DW_TAG_array_type; }

bool isStruct(const DICompositeType *C) {
  return C && (C->getTag() == dwarf::DW_TAG_structure_type || C->getTag() == dwarf::DW_TAG_class_type ||
               C->getTag() == dwarf::DW_TAG_union_type);
}

const DIType *pointee(const DIType *T) {
  auto *D = dyn_cast_or_null<DIDerivedType>(bare(T));
  if (!D || (D->getTag() != dwarf::DW_TAG_pointer_type && D->getTag() != dwarf::DW_TAG_reference_type))
    return nullptr;
  return bare(D->getBaseType());
}

// The definition, where this type is only declared; by name.
const DICompositeType *composite(const Module &M, StringRef Name) {
  DebugInfoFinder Finder;
  Finder.processModule(M);
  const DICompositeType *Declared = nullptr;
  for (DIType *T : Finder.types()) {
    auto *C = dyn_cast<DICompositeType>(T);
    if (auto *D = dyn_cast<DIDerivedType>(T); D && D->getTag() == dwarf::DW_TAG_typedef && D->getName() == Name)
      C = const_cast<DICompositeType *>(dyn_cast_or_null<DICompositeType>(bare(D)));
    if (!C || (C->getName() != Name && T->getName() != Name))
      continue;
    if (!C->isForwardDecl())
      return C;
    Declared = C;
  }
  return Declared;
}

struct Found {
  const DIDerivedType *Member = nullptr;
  uint64_t Bytes = 0;
};

// Also in structures and unions without a name, and in base classes.
bool member(const DICompositeType &In, StringRef Name, uint64_t At, Found &Out) {
  for (const DINode *N : In.getElements()) {
    auto *D = dyn_cast<DIDerivedType>(N);
    if (!D || D->isStaticMember())
      continue;
    uint64_t Offset = At + D->getOffsetInBits() / 8;
    if (D->getTag() == dwarf::DW_TAG_member && D->getName() == Name) {
      Out = {D, Offset};
      return true;
    }
    bool Inner = D->getTag() == dwarf::DW_TAG_inheritance || (D->getTag() == dwarf::DW_TAG_member && D->getName().empty());
    auto *C = Inner ? dyn_cast_or_null<DICompositeType>(bare(D->getBaseType())) : nullptr;
    if (C && member(*C, Name, Offset, Out))
      return true;
  }
  return false;
}

class Reader {
public:
  Reader(IRBuilder<> &B, const Function &Of, ArrayRef<Value *> Arguments, StringRef Text, std::string &Why)
      : B(B), M(*B.GetInsertBlock()->getModule()), Of(Of), Arguments(Arguments), Rest(Text), Why(Why) {}

  Value *sum() {
    Value *V = operand();
    while (V && !Rest.empty()) {
      bool Plus = Rest.consume_front("+");
      if (!Plus && !Rest.consume_front("-"))
        return fail("'+', '-' or the end is needed before '" + Rest + "'");
      Value *Other = operand();
      V = !Other ? nullptr : Plus ? B.CreateAdd(V, Other) : B.CreateSub(V, Other);
    }
    return V;
  }

private:
  IRBuilder<> &B;
  const Module &M;
  const Function &Of;
  ArrayRef<Value *> Arguments;
  StringRef Rest;
  std::string &Why;

  std::nullptr_t fail(const Twine &Text) {
    Why = Text.str();
    return nullptr;
  }

  Value *operand() {
    bool IsNumber = Rest.consume_front("#");
    unsigned N;
    if (Rest.consumeInteger(10, N))
      return fail("a number is needed before '" + Rest + "'");
    if (IsNumber)
      return B.getInt64(N);
    if (N >= Arguments.size())
      return fail("there is no argument " + Twine(N));
    Value *V = Arguments[N];
    if (!V->getType()->isPointerTy() && !(V->getType()->isIntegerTy() && V->getType()->getIntegerBitWidth() <= 64))
      return fail("argument " + Twine(N) + " is neither a pointer nor an integer");
    const DIType *T = typeOf(N);
    while (Rest.starts_with("->") || Rest.starts_with(".")) {
      bool Within = Rest.consume_front(".");
      Rest.consume_front("->");
      size_t End = Rest.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
      StringRef Name = Rest.take_front(End);
      Rest = Rest.drop_front(Name.size());
      V = field(V, T, Name, Within);
      if (!V)
        return nullptr;
      if (Rest.consume_front("(")) {
        auto [Struct, After] = Rest.split(')');
        Rest = After;
        T = composite(M, Struct);
        if (!T)
          return fail("there is no debug information about '" + Struct + "'");
        Cast = true;
      }
    }
    return V->getType()->isPointerTy() ? B.CreatePtrToInt(V, B.getInt64Ty()) : wide(V, T);
  }

  bool Cast = false; // T is what the value points to, not the value's own type

  Value *wide(Value *V, const DIType *T) {
    auto *Basic = dyn_cast_or_null<DIBasicType>(bare(T));
    bool Signed = Basic && (Basic->getEncoding() == dwarf::DW_ATE_signed || Basic->getEncoding() == dwarf::DW_ATE_signed_char);
    return B.CreateIntCast(V, B.getInt64Ty(), Signed);
  }

  const DIType *typeOf(unsigned N) {
    const DISubprogram *S = Of.getSubprogram();
    // Results by pointer and structures in pieces: arguments of the code are not those of the source.
    if (!S || !S->getType() || S->getType()->getTypeArray().size() != Of.arg_size() + 1)
      return nullptr;
    return S->getType()->getTypeArray()[N + 1];
  }

  // Behind a pointer of type T, or within the structure of type T at Base.
  Value *field(Value *Base, const DIType *&T, StringRef Name, bool Within) {
    auto *C = dyn_cast_or_null<DICompositeType>(Cast || Within ? bare(T) : pointee(T));
    Cast = false;
    if (C && C->isForwardDecl())
      C = composite(M, C->getName());
    if (!isStruct(C) || C->isForwardDecl())
      return fail("what '" + Twine(Within ? "." : "->") + Name + "' is taken of is no " + (Within ? "" : "pointer to a ") +
                  "structure that this file's debug information describes");
    Found F;
    if (!member(*C, Name, 0, F))
      return fail("'" + C->getName() + "' has no member '" + Name + "'");
    if (F.Member->isBitField())
      return fail("'" + Name + "' is a bit field");
    T = F.Member->getBaseType();
    const DIType *Own = bare(T);
    bool IsPointer =
        pointee(T) || (isa_and_nonnull<DIDerivedType>(Own) && cast<DIDerivedType>(Own)->getTag() == dwarf::DW_TAG_pointer_type);
    uint64_t Bits = IsPointer ? 64 : Own ? Own->getSizeInBits() : 0;
    if (!Base->getType()->isPointerTy())
      Base = B.CreateIntToPtr(Base, B.getPtrTy());
    Value *At = B.CreateConstGEP1_64(B.getInt8Ty(), Base, F.Bytes);
    if (auto *Whole = dyn_cast_or_null<DICompositeType>(Own); isArray(Whole) || isStruct(Whole))
      return At; // the bytes themselves
    if (IsPointer)
      return B.CreateAlignedLoad(B.getPtrTy(), At, Align(1));
    if (Bits != 8 && Bits != 16 && Bits != 32 && Bits != 64)
      return fail("'" + Name + "' is neither a pointer, an integer, an array nor a structure");
    return B.CreateAlignedLoad(B.getIntNTy(Bits), At, Align(1));
  }
};

} // namespace

Value *placeOf(IRBuilder<> &B, const Function &Of, ArrayRef<Value *> Arguments, StringRef Text, std::string &Why) {
  return Reader(B, Of, Arguments, Text, Why).sum();
}

} // namespace steadfast
