"""What the codecs of several families share: causal decoders and encoders that stream, and the stages around them."""
