"""What is particular to Mathieu et al. (2019): its reference samplers and its figures."""
