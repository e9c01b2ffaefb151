; A function without a name for others, in a group that the linker keeps once: its clone and its entry go with it. What only
; the loader calls has no entry.
; CHECK: @__sf_clone_entry = private constant { ptr, ptr } { ptr @first, ptr @first.sf }, section "sf_clones", comdat($group)
; CHECK: define internal void @first.sf() #0 comdat($group)
; NEVER: @start.sf
; NEVER: @first.sf = comdat
$group = comdat any
@group = linkonce_odr global ptr @first, comdat
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr @group }]
define internal void @first() comdat($group) {
  ret void
}
define internal void @start() section ".text.startup" comdat($group) {
  store ptr null, ptr @group
  ret void
}
