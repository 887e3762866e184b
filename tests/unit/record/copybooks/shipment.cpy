       01  SHIPMENT.
           05  SENDER.
               COPY ADDRESS REPLACING ==:PRE:== BY ==FROM==
                                      ==:LEN:== BY ==15==.
           05  RECEIVER.
               COPY address REPLACING ==:PRE:== BY ==TO==
                                      ==:LEN:== BY ==25==.
           05  WEIGHT                   PIC 9(4)V9.
