"""What is particular to Mathieu et al. (2019): its tables, its figures, its reference samplers."""
