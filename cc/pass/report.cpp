#include "report.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/DebugLoc.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace steadfast {

static std::string place(StringRef File, unsigned Line) { return Line ? (File + ":" + Twine(Line)).str() : File.str(); }

std::string whereIs(const Function &F) {
  if (const DISubprogram *S = F.getSubprogram())
    return place(S->getFilename(), S->getLine());
  return F.getParent()->getSourceFileName();
}

std::string whereIs(const Instruction &I) {
  if (const DebugLoc &At = I.getDebugLoc())
    return place(cast<DIScope>(At.getScope())->getFilename(), At.getLine());
  return whereIs(*I.getFunction());
}

std::string idOf(const Function &F) {
  if (F.hasLocalLinkage())
    return (F.getParent()->getSourceFileName() + ":" + F.getName()).str();
  return F.getName().str();
}

Report::Report(const Module &M) { line({"M", M.getSourceFileName()}); }

void Report::line(std::initializer_list<StringRef> Fields) {
  Text += join(Fields, "\t");
  Text += '\n';
}

void Report::once(std::initializer_list<StringRef> Fields) {
  std::string Line = join(Fields, "\t");
  if (!Seen.insert(Line).second)
    return;
  Text += Line;
  Text += '\n';
}

void Report::writeTo(Module &M) const {
  std::string Asm = ".pushsection .steadfast.cov,\"\",@progbits\n";
  raw_string_ostream Out(Asm);
  SmallVector<StringRef, 64> Lines;
  StringRef(Text).split(Lines, '\n', -1, false);
  for (StringRef Line : Lines) {
    Out << ".ascii \"";
    for (unsigned char Byte : Line) {
      // The assembler reads up to three octal digits.
      if (Byte == '"' || Byte == '\\' || Byte < 32 || Byte > 126)
        Out << '\\' << char('0' + Byte / 64) << char('0' + Byte / 8 % 8) << char('0' + Byte % 8);
      else
        Out << Byte;
    }
    Out << "\\n\"\n";
  }
  Out << ".popsection";
  Out.flush();
  M.appendModuleInlineAsm(Asm);
}

} // namespace steadfast
