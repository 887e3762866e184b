      * ONE FIELD OF EACH FORMAT
       01  NUMBER-FORMATS.
           05  ZONED                    PIC S9(4).
           05  ZONED-UNSIGNED           PIC 9(4).
           05  ZONED-LEADING            PIC S9(4) SIGN LEADING.
           05  SEPARATE-TRAILING        PIC S9(4) SIGN TRAILING
                                        SEPARATE.
           05  SEPARATE-LEADING         PIC S9(4)V9 SIGN IS LEADING
                                        SEPARATE CHARACTER.
           05  PACKED                   PIC S9(4)V99 PACKED-DECIMAL.
           05  PACKED-UNSIGNED          PIC 9(5) COMP-3.
           05  HALFWORD                 PIC S9(4) BINARY.
           05  FULLWORD                 PIC S9(9) COMP.
           05  DOUBLEWORD               PIC S9(18) COMP-4.
           05  UNSIGNED-HALFWORD        PIC 9(4) COMP.
           05  SCALED                   PIC S9(5)V9(4) COMP.
           05  EDITED                   PIC -ZZ,ZZ9.99.
