"""The toy grammar's rules, as data for `tools.toy.notation`.

A block opens with a category; each line below it is one rule: a weight, what the head word must have
(or, with `!`, must not have: a form, a relation or a trait), and a bracket whose leaves are

    (DT the)         this word
    (VBD _)          the form VBD of the head word
    (VP.VBD =)       a constituent of category VP.VBD with the same head word
    (NP-SBJ =subj)   a constituent of category NP whose head word is drawn by p(. | head word, subj);
                     its label gets the function tag -SBJ

`#` is a number of the rule's own, for traces. `{a|b}` in a block makes one block of a's and one of
b's; `@` repeats the alternative of the block's category. A rule applies to a head word only if every
part of it can be carried out with that word; the weights of those that do are normalised.

In each bracket the head is the child with `_`, or else with the last bare `=`; without either, the
first word. That gives the heads of Stanford's basic dependencies.
"""

RULES = """
ROOT
  1         (TOP =root)

{S|TOP}
  48        (S (SUBJ.sg-SBJ =) (FIN.sg =) {|(. .)})
  16        (S (SUBJ.pl-SBJ =) (FIN.pl =) {|(. .)})
  3         (S (SUBJ.sg-SBJ =) (ADVP-TMP =freq) (VP.VBD =) {|(. .)})
  2         (S (SUBJ.pl-SBJ =) (ADVP-TMP =freq) (VP.VBD =) {|(. .)})
  4         (S (NP.sg-SBJ-# =obj) (VP (VBD was)
            (VP (VBN _) (NP (-NONE- *-#)) (PP (IN by) (NP-LGS =subj)))) {|(. .)})
  2         (S (NP.pl-SBJ-# =obj) (VP (VBD were)
            (VP (VBN _) (NP (-NONE- *-#)) (PP (IN by) (NP-LGS =subj)))) {|(. .)})
  3         (S (NP.sg-SBJ-# =obj) (VP (VBD was) (VP (VBN _) (NP (-NONE- *-#)) (PP-LOC =where))) {|(. .)})
  2         (S (NP.pl-SBJ-# =obj) (VP (VBD were) (VP (VBN _) (NP (-NONE- *-#)) (PP-CLR =pp))) {|(. .)})
TOP
  4         (S (PP-LOC =where) (, ,) (SUBJ-SBJ =) (VP.VBD =) (. .))
  2         (S (SBAR.adv-ADV =adv) (, ,) (SUBJ-SBJ =) (VP.VBD =) (. .))
  5         (S (S =) (, ,) (CC and) (S =next) (. .))
  3         (S (S =) (, ,) (CC but) (S =next) (. .))
  2         (S (S =) (: ;) (S =next) (. .))
  18        (S (`` ``) (S-TPC-# =comp) (, ,) ('' '')
            (SUBJ-SBJ =) (VP (VBD _) (SBAR (-NONE- 0) (S (-NONE- *T*-#)))) (. .))
  1 sg      (S (NP-SBJ (EX there)) (VP (VBD _) (NP.sg-PRD =thing) (PP-LOC =where)) (. .))
  1 pl      (S (NP-SBJ (EX there)) (VP (VBD _) (NP.pl-PRD =thing) (PP-LOC =where)) (. .))

SUBJ
  8         (SUBJ.sg =)
  2         (SUBJ.pl =)
SUBJ.{sg|pl}
  72        (NP.@ =subj)
  12 human  (NP (PRP {he|they}))
  9  human  (NP (PRP {she|we}))

FIN.{sg|pl}
  60        (VP.VBD =)
  10        (VP (VBD {was|were}) (VP.VBG =))
  5         (VP ({VBZ|VBP} {has|have}) (VP.VBN =))
  6         (VP (MD will) (VP.VB =))
  4         (VP (MD could) (VP.VB =))
  4         (VP (VBD did) (RB not) (VP.VB =))
  3         (VP (VBD did) (RB n't) (VP.VB =))
  6         (VP (VP.VBD =) (CC and) (VP.VBD =next))
  40        (VP (VBD {was|were}) (PRED-PRD =))
  14        (VP ({VBZ|VBP} {is|are}) (PRED-PRD =))
  10        (VP (VBD {was|were}) (NB.@-PRD =))

VP.{VBD|VB|VBG|VBN}
  30 !bound (VP (@ _) (NP =obj))
  34        (VP (@ _) (NP =obj) (PP-CLR =pp))
  8 !bound  (VP (@ _) (NP =obj) (ADVP-MNR =manner))
  5         (VP (@ _) (NP =obj) (PP-LOC =where))
  4 !bound  (VP (@ _) (NP =obj) (SBAR.adv-ADV =adv))
  2 !bound  (VP (@ _) (NP =obj) (INF-PRP =purpose))
  10 !obj !comp !xcomp !bound  (VP (@ _))
  36 !obj   (VP (@ _) (PP-CLR =pp))
  10 !obj   (VP (@ _) (ADVP-MNR =manner))
  10 !obj   (VP (@ _) (ADVP-MNR =manner) (PP-CLR =pp))
  6  !obj   (VP (@ _) (PP-LOC =where))
  4  !obj   (VP (@ _) (SBAR.adv-ADV =adv))
  3  !obj   (VP (@ _) (PP-CLR =pp) (INF-PRP =purpose))
  1         (VP (@ _) (SBAR =comp))
  1         (VP (@ _) (INF =xcomp))
VP.VBD
  8         (VP (VBD _) (NP =obj) (TMP =when))
  8  !obj   (VP (VBD _) (PP-CLR =pp) (TMP =when))

SBAR
  5         (SBAR (IN that) (S =))
  4         (SBAR (-NONE- 0) (S =))
SBAR.adv
  4         (SBAR (IN because) (S =))
  3         (SBAR (IN while) (S =))
  2         (SBAR (IN before) (S =))
  2         (SBAR (IN after) (S =))
SBAR.{who|which}
  1         (SBAR (WHNP-# ({WP|WDT} @)) (S (NP-SBJ (-NONE- *T*-#)) (VP.VBD =)))
SBAR.that
  3 !bound  (SBAR (WHNP-# (WDT that)) (S (SUBJ-SBJ =) (VP (VBD _) (NP (-NONE- *T*-#)))))
  3 !bound  (SBAR (WHNP-# (-NONE- 0)) (S (SUBJ-SBJ =) (VP (VBD _) (NP (-NONE- *T*-#)))))
INF
  1         (S (NP-SBJ (-NONE- *)) (VP (TO to) (VP.VB =)))

NP
  8         (NP.sg =)
  2         (NP.pl =)
  1 scale   (NP (QP ($ $) (CD =) (CD _)) (-NONE- *U*))
  1 number  (NP ($ $) (CD _) (-NONE- *U*))
NP.{sg|pl}
  62        (NB.@ =)
  12        (NP (NB.@ =) (PP =pp))
  50 needy  (NP (NB.@ =) (PP =pp))
  4 who     (NP (NB.@ =) (SBAR.who =does))
  2 !who !NNP (NP (NB.@ =) (SBAR.which =does))
  2 !NNP    (NP (NB.@ =) (SBAR.that =undergoes))
NP.sg
  8         (NP (NB.sg =) (, ,) (NB.sg =called) (, ,))
NP.pl
  6         (NP (NB.sg =) (CC and) (NB.sg =with))
  3         (NP (NB.pl =) (CC and) (NB.pl =with))

NB.sg
  34        (NP (DT the) (NN _))
  20 NNS    (NP (DT a) (NN _))
  16        (NP (DT the) (JJ =adj) (NN _))
  14 NNS    (NP (DT a) (JJ =adj) (NN _))
  2         (NP (DT the) (ADJP =adj) (NN _))
  3 NNS     (NP (DT this) (NN _))
  2 NNS     (NP (DT every) (NN _))
  4         (NP (PRP$ his) (NN _))
  4         (NP (PRP$ her) (NN _))
  6         (NP (NP (NNP =owner) (POS 's)) (NN _))
  20 !NNS   (NP (NN _))
  20 !NNS   (NP (JJ =adj) (NN _))
  1         (NP (NNP _))
NB.pl
  30        (NP (DT the) (NNS _))
  14        (NP (NNS _))
  16        (NP (JJ =adj) (NNS _))
  14        (NP (DT the) (JJ =adj) (NNS _))
  6         (NP (DT some) (NNS _))
  4         (NP (JJ many) (NNS _))
  8         (NP (CD =) (NNS _))
  3         (NP (QP =) (NNS _))
  3         (NP (DT all) (JJ =adj) (NNS _))
QP
  1         (QP (RB about) (CD =))
  1         (QP (RB only) (CD =))
CD
  8         (CD 2)
  5         (CD 3)
  3         (CD 12)
  2         (CD 40)
  1         (CD 1,200)
  1         (CD three)

PRED
  6         (ADJP (JJ _))
  3         (ADJP (RB very) (JJ _))
  2         (ADJP (RB too) (JJ _))
ADJP
  1         (ADJP (RB very) (JJ _))
JJ
  1         (JJ _)
NNP
  1         (NNP _)
ADVP
  6         (ADVP (RB _))
  1 grade   (ADVP (RB very) (RB _))
PP
  1         (PP (IN _) (NP =pobj))
  1         (PP (TO _) (NP =pobj))
TMP
  1 bare    (NP-TMP (NN _))
  1 past    (NP-TMP (JJ last) (NN _))
  1         (PP-TMP =)
"""
