           10  :PRE:-STREET             PIC X(20).
           10  :PRE:-CITY               PIC X(:LEN:).
