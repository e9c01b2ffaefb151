; A message found through fields: a load for each arrow, none for a dot, and none where the condition holds.
; POLICY: handler handle input=0->end-0->item(head)->bytes:0->item(head)->bytes unless=0->state.flags&32
; CHECK: define void @handle(ptr %c)
; CHECK: outer:
; CHECK: getelementptr i8, ptr %c, i64 16
; CHECK: i64 4
; CHECK: load i16, ptr
; CHECK: and i64
; CHECK: 32
; CHECK: message:
; CHECK: load i32, ptr
; CHECK: sext i32
; CHECK: sub i64
; CHECK: call void @sf_input_edge(
define void @handle(ptr %c) !dbg !5 {
  ret void
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!1}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !2, emissionKind: FullDebug, retainedTypes: !20)
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !DIFile(filename: "f.c", directory: "/")
!3 = !DISubroutineType(types: !4)
!4 = !{null, !6}
!5 = distinct !DISubprogram(name: "handle", scope: !2, file: !2, line: 1, type: !3, spFlags: DISPFlagDefinition, unit: !0)
!6 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !7, size: 64)
!7 = !DICompositeType(tag: DW_TAG_structure_type, name: "connection", file: !2, size: 192, elements: !8)
!8 = !{!9, !10, !21}
!9 = !DIDerivedType(tag: DW_TAG_member, name: "end", baseType: !11, size: 64, offset: 0)
!10 = !DIDerivedType(tag: DW_TAG_member, name: "item", baseType: !12, size: 64, offset: 64)
!11 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !13, size: 64)
!12 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: null, size: 64)
!13 = !DIBasicType(name: "char", size: 8, encoding: DW_ATE_signed_char)
!14 = !DICompositeType(tag: DW_TAG_structure_type, name: "head", file: !2, size: 64, elements: !15)
!15 = !{!17}
!16 = !DIDerivedType(tag: DW_TAG_member, name: "flags", baseType: !18, size: 16, offset: 32)
!17 = !DIDerivedType(tag: DW_TAG_member, name: "bytes", baseType: !19, size: 32, offset: 32)
!18 = !DIBasicType(name: "unsigned short", size: 16, encoding: DW_ATE_unsigned)
!19 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!20 = !{!14}
!21 = !DIDerivedType(tag: DW_TAG_member, name: "state", baseType: !22, size: 64, offset: 128)
!22 = !DICompositeType(tag: DW_TAG_structure_type, name: "state", file: !2, size: 64, elements: !23)
!23 = !{!16}
