      * ZEROS THAT ARE NOT STORED
       01  SCALED-NUMBERS.
           05  THOUSANDS                PIC S9(4)PPP COMP-3.
           05  MILLIONTHS               PIC SVPPP9(3) COMP-3.
           05  HUNDREDS                 PIC 9(3)PP.
