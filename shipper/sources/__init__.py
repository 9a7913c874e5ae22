"""What a shipper reads. Each source gives `block.Block`s and `notices.Notice`s and knows no broker."""
