; Optimisers that come later, when linking, leave the two runs apart: a clone that only computes is called twice, and what it computes is
; not done beforehand. (Inside a handler it is a function like others.)
; POLICY: local-handler handle
; THEN: cgscc(inline,function-attrs),function(early-cse,gvn,simplifycfg)
; CHECK: define
; CHECK: @handle(i32 %v)
; CHECK: call i32 @__sf_begin(
; CHECK: asm sideeffect "leaq ${1:c}(%rip), $0"
; CHECK: = call i32 %
; CHECK: call void @__sf_mid(
; CHECK: asm sideeffect "leaq ${1:c}(%rip), $0"
; CHECK: = call i32 %
; CHECK: call void @__sf_end(
define i32 @handle(i32 %v) nounwind {
  %a = mul i32 %v, %v
  %b = add i32 %a, 77
  ret i32 %b
}
